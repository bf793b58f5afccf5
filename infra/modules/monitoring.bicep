// Where logs go. Nothing writes here with a key: the workspace takes no keys, Container Apps writes through a diagnostic
// setting (environment.bicep).
param location string
param tags { *: string }
param workspaceName string
param applicationInsightsName string
param retentionDays int
param traces bool

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

// Receives the traces. What the services report besides goes by log records and platform metrics: the agent of Container
// Apps passes no metrics on to Application Insights. It signs in with the connection string, so local authentication is
// on here.
resource applicationInsights 'Microsoft.Insights/components@2020-02-02' = if (traces) {
  name: applicationInsightsName
  location: location
  tags: tags
  kind: 'web'
  properties: {
    Application_Type: 'web'
    WorkspaceResourceId: workspace.id
    DisableLocalAuth: false
  }
}

output workspaceId string = workspace.id
output workspaceName string = workspace.name
