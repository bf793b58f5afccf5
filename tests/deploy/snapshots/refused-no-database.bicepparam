// refused: MONGODB_DATABASE is not set
using '../../../infra/main.bicep'

param environmentName = 'prod'
param location = 'westeurope'
param mongoCollection = 'events'
param sourceMongoUri = 'mongodb://snapshot.invalid/'
