// What PSRule for Azure looks at: the deployment with everything on. No value here is anybody's.
using '../main.bicep'

param environmentName = 'rules-private'
param location = 'westeurope'
param mongoDatabase = 'shop'
param mongoCollection = 'events'
param sourceMongoUri = 'mongodb://rules.invalid/'
param alertEmail = 'oncall@example.com'
param networkMode = 'private'
param serviceBusSku = 'Premium'
param replicaRegion = 'swedencentral'
param traces = true
