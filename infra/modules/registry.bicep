// The registry of the two images. No admin user: the apps pull with their identities, azd pushes as whoever runs it.
param location string
param tags object
param name string
@description('Reached through private endpoints only')
param privateNetwork bool
@description('Where its own logs and metrics go')
param workspaceId string
@description('Principals that may pull')
param pullers string[]

var acrPull = subscriptionResourceId('Microsoft.Authorization/roleDefinitions', '7f951dda-4ed3-4680-a7ca-43fe172d538d')

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
resource diagnostics 'Microsoft.Insights/diagnosticSettings@2021-05-01-preview' = {
  name: 'to-workspace'
  scope: registry
  properties: {
    workspaceId: workspaceId
    logs: [{ categoryGroup: 'allLogs', enabled: true }]
    metrics: [{ category: 'AllMetrics', enabled: true }]
  }
}

resource pull 'Microsoft.Authorization/roleAssignments@2022-04-01' = [
  for puller in pullers: {
    name: guid(registry.id, puller, acrPull)
    scope: registry
    properties: { principalId: puller, principalType: 'ServicePrincipal', roleDefinitionId: acrPull }
  }
]

output id string = registry.id
output name string = registry.name
output loginServer string = registry.properties.loginServer
