using '../../../infra/main.bicep'

param environmentName = 'prod'
param location = 'westeurope'
param mongoDatabase = 'shop'
param mongoCollection = 'events'
param sourceMongoUri = 'mongodb://snapshot.invalid/'
param serviceBusSku = 'Premium'
param messagingUnits = 4
param partitioned = true
param replicaRegion = 'swedencentral'
