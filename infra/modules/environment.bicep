// The Container Apps environment. Both apps only make outgoing connections and have no ingress, so nothing of it is
// reachable from outside, with a virtual network or without one. Only with one can it be spread over zones; both are
// fixed when it is created.
param location string
param tags { *: string }
param name string
@description('Of a virtual network; empty: none')
param subnetId string
param zoneRedundant bool
@description('Application Insights, which receives the traces; empty: there are no traces')
param applicationInsightsName string

var traces = !empty(applicationInsightsName)

resource applicationInsights 'Microsoft.Insights/components@2020-02-02' existing = if (traces) {
  name: applicationInsightsName
}

resource environment 'Microsoft.App/managedEnvironments@2026-07-01' = {
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
    // The platform's OpenTelemetry agent passes traces on. It sets OTEL_EXPORTER_OTLP_ENDPOINT in the apps, and they trace
    // if that is set.
    appInsightsConfiguration: traces ? { connectionString: applicationInsights!.properties.ConnectionString } : null
    openTelemetryConfiguration: traces ? { tracesConfiguration: { destinations: ['appInsights'] } } : null
  }
}

output name string = environment.name
