using '../../../infra/main.bicep'

param environmentName = 'prod'
param location = 'westeurope'
param mongoMode = 'demo'
