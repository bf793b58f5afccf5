// refused: SUBNET_ID needs NETWORK=vnet or private
using '../../../infra/main.bicep'

param environmentName = 'prod'
param location = 'westeurope'
param mongoDatabase = 'shop'
param mongoCollection = 'events'
param sourceMongoUri = 'mongodb://snapshot.invalid/'
param subnetId = '/subscriptions/s/resourceGroups/r/providers/Microsoft.Network/virtualNetworks/n/subnets/apps'
