// An Azure DocumentDB cluster, for whoever has no MongoDB. It serves as the read models' database. As the source it has
// limits that MongoDB has not: 400 MB of change log, and resume tokens that cannot be compared; a producer that meets such
// a token stops and says so. The README tells which of them this version copes with.
param location string
param tags { *: string }
param name string
@description('Reached through private endpoints only')
param privateNetwork bool
@description('Where its own logs go')
param workspaceId string

@description('Of the administrator. The Service is reached with it: a cluster of one\'s own, in which there is nothing else')
param administrator string = 'sluice'
@secure()
@description('8 to 128 characters. That there is one is checked before provisioning (scripts/preflight.sh): it is empty while there is no cluster')
param password string

param vaultName string
@description('Put the URI into the source\'s secret')
param writeSource bool
@description('Put the URI into the read models\' secret')
param writeReadModel bool

@description('M30 is the smallest tier with a service level')
param tier string = 'M30'
param storageGb int = 128
@allowed(['Disabled', 'SameZone', 'ZoneRedundantPreferred'])
@description('A second node that takes over, for twice the price')
param highAvailability string = 'Disabled'

resource cluster 'Microsoft.DocumentDB/mongoClusters@2025-09-01' = {
  name: name
  location: location
  tags: tags
  properties: {
    administrator: { userName: administrator, password: password }
    serverVersion: '8.0'
    sharding: { shardCount: 1 } // change streams need one shard
    compute: { tier: tier }
    storage: { sizeGb: storageGb }
    highAvailability: { targetMode: highAvailability }
    publicNetworkAccess: privateNetwork ? 'Disabled' : 'Enabled'
  }
}

// Container Apps without a virtual network has no address of its own to allow, so Azure's are (0.0.0.0 means that, and
// only that). The password is what keeps others out; NETWORK=private keeps them away.
resource fromAzure 'Microsoft.DocumentDB/mongoClusters/firewallRules@2025-09-01' = if (!privateNetwork) {
  parent: cluster
  name: 'AllowAzureServices'
  properties: { startIpAddress: '0.0.0.0', endIpAddress: '0.0.0.0' }
}

#disable-next-line use-recent-api-versions // the stable version is older and has another form
resource diagnostics 'Microsoft.Insights/diagnosticSettings@2021-05-01-preview' = {
  name: 'to-workspace'
  scope: cluster
  properties: {
    workspaceId: workspaceId
    logs: [{ categoryGroup: 'allLogs', enabled: true }]
  }
}

// The cluster's own host. There is a global one as well, which follows a replica cluster that is promoted; none is created
// here, and the private DNS zone has this name.
var host = '${cluster.name}.mongocluster.cosmos.azure.com'
var options = 'tls=true&authMechanism=SCRAM-SHA-256&retryWrites=false&maxIdleTimeMS=120000'
var uri = 'mongodb+srv://${administrator}:${uriComponent(password)}@${host}/?${options}'

resource vault 'Microsoft.KeyVault/vaults@2025-05-01' existing = {
  name: vaultName
}

resource source 'Microsoft.KeyVault/vaults/secrets@2025-05-01' = if (writeSource) {
  parent: vault
  name: 'source-mongodb-uri'
  tags: tags
  properties: { value: uri, contentType: 'Azure DocumentDB connection string' }
}

resource readModel 'Microsoft.KeyVault/vaults/secrets@2025-05-01' = if (writeReadModel) {
  parent: vault
  name: 'read-model-mongodb-uri'
  tags: tags
  properties: { value: uri, contentType: 'Azure DocumentDB connection string' }
}

output id string = cluster.id
output name string = cluster.name
