// refused: PROJECTION is not set, and PROJECTION_VERSIONS names subscriptions by it; azd env set PROJECTION NAME
using '../../../infra/main.bicep'

param environmentName = 'prod'
param location = 'westeurope'
param mongoDatabase = 'shop'
param mongoCollection = 'events'
param sourceMongoUri = 'mongodb://snapshot.invalid/'
param projectionVersions = '1,2'
