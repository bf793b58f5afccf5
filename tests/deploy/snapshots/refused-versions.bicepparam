// refused: PROJECTION_VERSIONS must be whole numbers from 1 to 999, separated by commas
using '../../../infra/main.bicep'

param environmentName = 'prod'
param location = 'westeurope'
param mongoDatabase = 'shop'
param mongoCollection = 'events'
param sourceMongoUri = 'mongodb://snapshot.invalid/'
param projection = 'orders'
param projectionVersions = '0,1'
