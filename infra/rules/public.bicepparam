// What PSRule for Azure looks at: the deployment as it is without settings. No value here is anybody's.
using '../main.bicep'

param environmentName = 'rules-public'
param location = 'westeurope'
param mongoDatabase = 'shop'
param mongoCollection = 'events'
param sourceMongoUri = 'mongodb://rules.invalid/'
param alertEmail = 'oncall@example.com'
