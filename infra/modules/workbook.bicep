// One page for whoever is on duty: leadership, lag, throughput, sessions, parked aggregates (../workbook.json). In the
// portal: the resource group, Workbooks, "Sluice".
param location string
param tags { *: string }
param workspaceId string
param producerName string
param projectorName string

resource workbook 'Microsoft.Insights/workbooks@2023-06-01' = {
  name: guid(resourceGroup().id, 'sluice-workbook')
  location: location
  tags: tags
  kind: 'shared'
  properties: {
    displayName: 'Sluice'
    category: 'workbook'
    sourceId: workspaceId
    serializedData: replace(
      replace(loadTextContent('../workbook.json'), '{{producer}}', producerName),
      '{{projector}}',
      projectorName
    )
  }
}

output id string = workbook.id
