// One page for whoever is on duty: leadership, lag, throughput, sessions, parked aggregates (../workbook.json). In the
// portal: the resource group, Workbooks, "Sluice".
param location string
param tags { *: string }
param workspaceId string
param producerName string
@description('In a list of the query language: the texts between quotation marks, without the first and the last mark')
param projectorNames string

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
      items({ producer: producerName, projector: projectorNames, workspace: workspaceId }),
      loadTextContent('../workbook.json'),
      (text, name) => replace(text, '{{${name.key}}}', name.value)
    )
  }
}

output id string = workbook.id
