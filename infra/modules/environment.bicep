// The Container Apps environment. Both apps only make outgoing connections and have no ingress, so nothing of it is
// reachable from outside, and no virtual network is needed to keep anybody out. Without one it cannot be zone-redundant:
// whoever needs that adds infrastructureSubnetId and zoneRedundant here, at creation.
param location string
param tags object
param name string

resource environment 'Microsoft.App/managedEnvironments@2025-07-01' = {
  name: name
  location: location
  tags: tags
  properties: {
    // azure-monitor, not log-analytics: that one would want the workspace's shared key. It also means the typed tables
    // ContainerAppConsoleLogs and ContainerAppSystemLogs.
    appLogsConfiguration: { destination: 'azure-monitor' }
    workloadProfiles: [{ name: 'Consumption', workloadProfileType: 'Consumption' }]
  }
}

output name string = environment.name
