// The vault with the only two secrets there are: the MongoDB connection strings, one for each service, so that each can
// have a database user of its own. The apps refer to them; the platform fetches them with the app's identity.
param location string
param tags { *: string }
param name string
@description('Reached through private endpoints only')
param privateNetwork bool
@description('Where its own logs go')
param workspaceId string
param purgeProtection bool
@description('Recover the vault of this name, which was deleted within the last seven days')
param recover bool

param fillSource bool
param fillReadModel bool
@secure()
param sourceMongoUri string
@secure()
param readModelMongoUri string

resource vault 'Microsoft.KeyVault/vaults@2025-05-01' = {
  name: name
  location: location
  tags: tags
  properties: {
    tenantId: tenant().tenantId
    sku: { family: 'A', name: 'standard' }
    publicNetworkAccess: privateNetwork ? 'Disabled' : 'Enabled'
    networkAcls: { defaultAction: privateNetwork ? 'Deny' : 'Allow', bypass: 'AzureServices' }
    createMode: recover ? 'recover' : 'default'
    enableRbacAuthorization: true // roles, not access policies
    enableSoftDelete: true
    softDeleteRetentionInDays: 7
    enablePurgeProtection: purgeProtection ? true : null // false is not accepted, and it cannot be taken back
  }
}

// Who read which secret.
#disable-next-line use-recent-api-versions // the stable version is older and has another form
resource diagnostics 'Microsoft.Insights/diagnosticSettings@2021-05-01-preview' = {
  name: 'to-workspace'
  scope: vault
  properties: {
    workspaceId: workspaceId
    logs: [{ categoryGroup: 'audit', enabled: true }]
  }
}

// Made once: from then on the vault has the last word, so that no provision from anywhere writes a URI back that has been replaced.
@onlyIfNotExists()
resource source 'Microsoft.KeyVault/vaults/secrets@2025-05-01' = if (fillSource) {
  parent: vault
  name: 'source-mongodb-uri'
  tags: tags
  properties: { value: sourceMongoUri, contentType: 'MongoDB connection string: read on the source' }
}

@onlyIfNotExists()
resource readModel 'Microsoft.KeyVault/vaults/secrets@2025-05-01' = if (fillReadModel) {
  parent: vault
  name: 'read-model-mongodb-uri'
  tags: tags
  properties: { value: readModelMongoUri, contentType: 'MongoDB connection string: readWrite on the read models' }
}

output id string = vault.id
output name string = vault.name
