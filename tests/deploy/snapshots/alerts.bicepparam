using '../../../infra/main.bicep'

param environmentName = 'prod'
param location = 'westeurope'
param mongoDatabase = 'shop'
param mongoCollection = 'events'
param sourceMongoUri = 'mongodb://snapshot.invalid/'
param alertEmail = 'oncall@example.com'
param actionGroupIds = '/subscriptions/s/resourceGroups/r/providers/Microsoft.Insights/actionGroups/a'
param othersSubscribe = true
param monthlyBudget = 500
