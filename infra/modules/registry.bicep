// The registry of the two images. No admin user: the apps pull with their identities, azd pushes as whoever runs it.
param location string
param tags { *: string }
param name string
@description('Reached through private endpoints only')
param privateNetwork bool
@description('Where its own logs go')
param workspaceId string
@description('Names of the identities that may pull')
param producerIdentity string
param projectorIdentity string

var acrPull = subscriptionResourceId(
  'Microsoft.Authorization/roleDefinitions',
  '7f951dda-4ed3-4680-a7ca-43fe172d538d'
)

resource producer 'Microsoft.ManagedIdentity/userAssignedIdentities@2024-11-30' existing = {
  name: producerIdentity
}

resource projector 'Microsoft.ManagedIdentity/userAssignedIdentities@2024-11-30' existing = {
  name: projectorIdentity
}

resource registry 'Microsoft.ContainerRegistry/registries@2025-11-01' = {
  name: name
  location: location
  tags: tags
  sku: { name: privateNetwork ? 'Premium' : 'Basic' } // only Premium has private endpoints
  properties: {
    adminUserEnabled: false
    publicNetworkAccess: privateNetwork ? 'Disabled' : 'Enabled'
    // AcrPull counts only while the registry does not ask for repository-scoped roles.
    roleAssignmentMode: 'LegacyRegistryPermissions'
  }
}

// Who pushed and pulled what.
#disable-next-line use-recent-api-versions // the stable version is older and has another form
resource diagnostics 'Microsoft.Insights/diagnosticSettings@2021-05-01-preview' = {
  name: 'to-workspace'
  scope: registry
  properties: {
    workspaceId: workspaceId
    logs: [{ categoryGroup: 'allLogs', enabled: true }]
  }
}

resource producerPulls 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(registry.id, producer.id, acrPull)
  scope: registry
  properties: {
    principalId: producer.properties.principalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: acrPull
  }
}

resource projectorPulls 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(registry.id, projector.id, acrPull)
  scope: registry
  properties: {
    principalId: projector.properties.principalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: acrPull
  }
}

output id string = registry.id
output name string = registry.name
output loginServer string = registry.properties.loginServer
