using '../../../infra/main.bicep'

param environmentName = 'prod'
param location = 'westeurope'
param mongoDatabase = 'shop'
param mongoCollection = 'events'
param sourceMongoUri = 'mongodb://snapshot.invalid/'
param operatorsGroupId = '11111111-2222-3333-4444-555555555555'
param entityKind = 'queue'
