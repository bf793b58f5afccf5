// Where logs go. Nothing writes here with a key: the workspace takes no keys, Container Apps writes through a diagnostic
// setting (environment.bicep).
param location string
param tags object
param workspaceName string
param applicationInsightsName string
param retentionDays int

resource workspace 'Microsoft.OperationalInsights/workspaces@2025-07-01' = {
  name: workspaceName
  location: location
  tags: tags
  properties: {
    sku: { name: 'PerGB2018' }
    retentionInDays: retentionDays
    features: { disableLocalAuth: true }
  }
}

// For traces, and for what others add to it. The services report by log records and platform metrics instead: the
// agent that Container Apps offers for OpenTelemetry passes on no metrics to Application Insights, needs a preview API,
// and needs local authentication left on here.
resource applicationInsights 'Microsoft.Insights/components@2020-02-02' = {
  name: applicationInsightsName
  location: location
  tags: tags
  kind: 'web'
  properties: {
    Application_Type: 'web'
    WorkspaceResourceId: workspace.id
    DisableLocalAuth: true
  }
}

output workspaceId string = workspace.id
output workspaceName string = workspace.name
output applicationInsightsName string = applicationInsights.name
