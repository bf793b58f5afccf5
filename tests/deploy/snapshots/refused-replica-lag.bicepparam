// refused: SERVICE_BUS_REPLICA_LAG_SECONDS is neither 0 nor
using '../../../infra/main.bicep'

param environmentName = 'prod'
param location = 'westeurope'
param mongoDatabase = 'shop'
param mongoCollection = 'events'
param sourceMongoUri = 'mongodb://snapshot.invalid/'
param serviceBusSku = 'Premium'
param replicaRegion = 'swedencentral'
param replicaLagSeconds = 60
