// refused: PROJECTION_VERSIONS needs SERVICE_BUS_ENTITY_KIND=topic: a queue has no second reader
using '../../../infra/main.bicep'

param environmentName = 'prod'
param location = 'westeurope'
param mongoDatabase = 'shop'
param mongoCollection = 'events'
param sourceMongoUri = 'mongodb://snapshot.invalid/'
param projection = 'orders'
param projectionVersions = '1,2'
param entityKind = 'queue'
