using '../../../infra/main.bicep'

param environmentName = 'prod'
param location = 'westeurope'
param mongoDatabase = 'shop'
param mongoCollection = 'events'
param sourceMongoUri = 'mongodb://snapshot.invalid/'
param projection = 'orders'
param projectionVersions = '1,2'
