// environment.bicep with the platform's OpenTelemetry agent, which passes traces on to Application Insights. Only a preview
// of the API has it, so it is a module of its own: whoever does not ask for traces gets nothing of the preview. The agent
// tells the apps where it is (OTEL_EXPORTER_OTLP_ENDPOINT, over gRPC); they trace when that is set.
param location string
param tags object
param name string
@description('Of a virtual network; empty: none')
param subnetId string
param zoneRedundant bool
param applicationInsightsName string

resource applicationInsights 'Microsoft.Insights/components@2020-02-02' existing = {
  name: applicationInsightsName
}

resource environment 'Microsoft.App/managedEnvironments@2025-10-02-preview' = {
  name: name
  location: location
  tags: tags
  properties: {
    appLogsConfiguration: { destination: 'azure-monitor' }
    workloadProfiles: [{ name: 'Consumption', workloadProfileType: 'Consumption' }]
    vnetConfiguration: empty(subnetId) ? null : { infrastructureSubnetId: subnetId, internal: true }
    zoneRedundant: zoneRedundant && !empty(subnetId) // without a network it cannot be
    appInsightsConfiguration: { connectionString: applicationInsights.properties.ConnectionString }
    openTelemetryConfiguration: { tracesConfiguration: { destinations: ['appInsights'] } }
  }
}

output name string = environment.name
