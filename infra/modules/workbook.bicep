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
    serializedData: reduce(
      items({ producer: producerName, projector: projectorName, workspace: workspaceId }),
      loadTextContent('../workbook.json'),
      (text, name) => replace(text, '{{${name.key}}}', name.value)
    )
  }
}

output id string = workbook.id
