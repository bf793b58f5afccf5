// The Container Apps environment. Both apps only make outgoing connections and have no ingress, so nothing of it is
// reachable from outside, with a virtual network or without one. Only with one can it be spread over zones; both are fixed when it is
// made.
param location string
param tags object
param name string
@description('Of a virtual network; empty: none')
param subnetId string
param zoneRedundant bool

resource environment 'Microsoft.App/managedEnvironments@2025-07-01' = {
  name: name
  location: location
  tags: tags
  properties: {
    // azure-monitor, not log-analytics: that one would want the workspace's shared key. It also means the typed tables
    // ContainerAppConsoleLogs and ContainerAppSystemLogs.
    appLogsConfiguration: { destination: 'azure-monitor' }
    workloadProfiles: [{ name: 'Consumption', workloadProfileType: 'Consumption' }]
    vnetConfiguration: empty(subnetId) ? null : { infrastructureSubnetId: subnetId, internal: true }
    zoneRedundant: zoneRedundant && !empty(subnetId) // without a network it cannot be
  }
}

output name string = environment.name
