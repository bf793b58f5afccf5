// refused: DOCUMENTDB_PASSWORD is not set
using '../../../infra/main.bicep'

param environmentName = 'prod'
param location = 'westeurope'
param mongoDatabase = 'shop'
param mongoCollection = 'events'
param mongoMode = 'documentdb'
