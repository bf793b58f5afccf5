// The storage account: the checkpoint blob, whose lease elects the leader, and the bodies of messages that are too large
// for Service Bus. No shared keys and no public blobs: only the roles below open it.
param location string
param tags { *: string }
param name string
@description('Reached through private endpoints only')
param privateNetwork bool
@description('Where its own logs go')
param workspaceId string
param producerIdentity string
param projectorIdentity string
@description('A group of people; empty: none')
param operatorsGroupId string

@allowed(['Standard_ZRS', 'Standard_LRS'])
param redundancy string
@description('Refuse to delete the account')
param deleteLock bool

@minValue(7)
@description('Days after which the body of an oversized message is deleted. A message must be gone by then, also from the dead-letter queue')
param claimCheckDays int = 60

var dataContributor = subscriptionResourceId(
  'Microsoft.Authorization/roleDefinitions',
  'ba92f5b4-2d11-453d-a403-e96b0029c9fe'
)
var dataReader = subscriptionResourceId(
  'Microsoft.Authorization/roleDefinitions',
  '2a2b9908-6ea1-4ae2-8e65-a410df84e7d1'
)

resource producer 'Microsoft.ManagedIdentity/userAssignedIdentities@2024-11-30' existing = {
  name: producerIdentity
}

resource projector 'Microsoft.ManagedIdentity/userAssignedIdentities@2024-11-30' existing = {
  name: projectorIdentity
}

resource account 'Microsoft.Storage/storageAccounts@2025-06-01' = {
  name: name
  location: location
  tags: tags
  kind: 'StorageV2'
  // Zone-redundant: the lease is what decides who leads, so it must survive a zone. Geo-redundancy would not help: it
  // replicates later, and a checkpoint from before is an epoch that came already.
  sku: { name: redundancy }
  properties: {
    accessTier: 'Hot'
    allowBlobPublicAccess: false
    allowSharedKeyAccess: false
    allowCrossTenantReplication: false
    defaultToOAuthAuthentication: true
    minimumTlsVersion: 'TLS1_2'
    supportsHttpsTrafficOnly: true
    publicNetworkAccess: privateNetwork ? 'Disabled' : 'Enabled'
    networkAcls: { defaultAction: privateNetwork ? 'Deny' : 'Allow', bypass: 'AzureServices' }
  }
}

// No versioning and no soft delete of blobs: the checkpoint is overwritten once a second, and each of 86,400 old ones a
// day would be kept, and paid for. Containers are kept for a week after deletion.
resource blobs 'Microsoft.Storage/storageAccounts/blobServices@2025-06-01' = {
  parent: account
  name: 'default'
  properties: {
    isVersioningEnabled: false
    deleteRetentionPolicy: { enabled: false }
    containerDeleteRetentionPolicy: { enabled: true, days: 7 }
  }
}

// Who deleted what. Reads and writes are left out: the checkpoint is written once a second, and each would be paid for.
#disable-next-line use-recent-api-versions // the stable version is older and has another form
resource diagnostics 'Microsoft.Insights/diagnosticSettings@2021-05-01-preview' = {
  name: 'to-workspace'
  scope: blobs
  properties: {
    workspaceId: workspaceId
    logs: [{ category: 'StorageDelete', enabled: true }]
  }
}

resource checkpoints 'Microsoft.Storage/storageAccounts/blobServices/containers@2025-06-01' = {
  parent: blobs
  name: 'sluice'
  properties: { publicAccess: 'None' }
}

resource claimChecks 'Microsoft.Storage/storageAccounts/blobServices/containers@2025-06-01' = {
  parent: blobs
  name: 'claim-checks'
  properties: { publicAccess: 'None' }
}

// Copies of the checkpoints, an hour apart (the job that copies): where to go on from when somebody has deleted the container above.
resource copies 'Microsoft.Storage/storageAccounts/blobServices/containers@2025-06-01' = {
  parent: blobs
  name: 'checkpoint-copies'
  properties: { publicAccess: 'None' }
}

// What operators' commands printed (../../scripts/operate.sh): the platform shows the output of a job only while it runs.
resource results 'Microsoft.Storage/storageAccounts/blobServices/containers@2025-06-01' = {
  parent: blobs
  name: 'command-results'
  properties: { publicAccess: 'None' }
}

// The epoch in the checkpoint must never come a second time, so the account is not to be deleted by mistake. azd down needs the
// lock gone first (README, "Security").
resource lock 'Microsoft.Authorization/locks@2020-05-01' = if (deleteLock) {
  name: 'checkpoints'
  scope: account
  properties: {
    level: 'CanNotDelete'
    notes: 'Holds the checkpoints and their epochs: a stream that loses them starts from the beginning'
  }
}

resource lifecycle 'Microsoft.Storage/storageAccounts/managementPolicies@2025-06-01' = {
  parent: account
  name: 'default'
  properties: {
    policy: {
      rules: [
        {
          name: 'delete-claim-checks'
          type: 'Lifecycle'
          enabled: true
          definition: {
            // Counted from the last write: an event that is published again keeps its body anew, under the same name.
            // The checkpoint container is not named here and must never be: its blob holds the epoch.
            filters: { blobTypes: ['blockBlob'], prefixMatch: ['${claimChecks.name}/'] }
            actions: { baseBlob: { delete: { daysAfterModificationGreaterThan: claimCheckDays } } }
          }
        }
        {
          name: 'delete-checkpoint-copies'
          type: 'Lifecycle'
          enabled: true
          definition: {
            filters: { blobTypes: ['blockBlob'], prefixMatch: ['${copies.name}/'] }
            actions: { baseBlob: { delete: { daysAfterModificationGreaterThan: 30 } } }
          }
        }
        {
          name: 'delete-command-results'
          type: 'Lifecycle'
          enabled: true
          definition: {
            filters: { blobTypes: ['blockBlob'], prefixMatch: ['${results.name}/'] }
            actions: { baseBlob: { delete: { daysAfterModificationGreaterThan: 7 } } }
          }
        }
      ]
    }
  }
}

// The producer leases, reads and writes its checkpoint, and writes large bodies. On the two containers, not the account.
resource producerCheckpoints 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(checkpoints.id, producer.id, dataContributor)
  scope: checkpoints
  properties: {
    principalId: producer.properties.principalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: dataContributor
  }
}

resource producerCopies 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(copies.id, producer.id, dataContributor)
  scope: copies
  properties: {
    principalId: producer.properties.principalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: dataContributor
  }
}

resource producerClaimChecks 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(claimChecks.id, producer.id, dataContributor)
  scope: claimChecks
  properties: {
    principalId: producer.properties.principalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: dataContributor
  }
}

// Commands of both services keep their answers.
resource producerResults 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(results.id, producer.id, dataContributor)
  scope: results
  properties: {
    principalId: producer.properties.principalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: dataContributor
  }
}

resource projectorResults 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(results.id, projector.id, dataContributor)
  scope: results
  properties: {
    principalId: projector.properties.principalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: dataContributor
  }
}

// The projector's commands verify, build and repair read the checkpoint, and its apps large bodies. It writes neither.
resource projectorCheckpoints 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(checkpoints.id, projector.id, dataReader)
  scope: checkpoints
  properties: {
    principalId: projector.properties.principalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: dataReader
  }
}

resource projectorClaimChecks 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(claimChecks.id, projector.id, dataReader)
  scope: claimChecks
  properties: {
    principalId: projector.properties.principalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: dataReader
  }
}

// Operators look into checkpoints and large bodies. Changes of a checkpoint go through the producer's commands, in its job.
resource operatorsCheckpoints 'Microsoft.Authorization/roleAssignments@2022-04-01' = if (!empty(operatorsGroupId)) {
  name: guid(checkpoints.id, operatorsGroupId, dataReader)
  scope: checkpoints
  properties: {
    principalId: operatorsGroupId
    principalType: 'Group'
    roleDefinitionId: dataReader
  }
}

resource operatorsCopies 'Microsoft.Authorization/roleAssignments@2022-04-01' = if (!empty(operatorsGroupId)) {
  name: guid(copies.id, operatorsGroupId, dataReader)
  scope: copies
  properties: {
    principalId: operatorsGroupId
    principalType: 'Group'
    roleDefinitionId: dataReader
  }
}

resource operatorsResults 'Microsoft.Authorization/roleAssignments@2022-04-01' = if (!empty(operatorsGroupId)) {
  name: guid(results.id, operatorsGroupId, dataReader)
  scope: results
  properties: {
    principalId: operatorsGroupId
    principalType: 'Group'
    roleDefinitionId: dataReader
  }
}

resource operatorsClaimChecks 'Microsoft.Authorization/roleAssignments@2022-04-01' = if (!empty(operatorsGroupId)) {
  name: guid(claimChecks.id, operatorsGroupId, dataReader)
  scope: claimChecks
  properties: {
    principalId: operatorsGroupId
    principalType: 'Group'
    roleDefinitionId: dataReader
  }
}

output id string = account.id
output name string = account.name
output blobUrl string = 'https://${account.name}.blob.${environment().suffixes.storage}'
output copiesContainer string = copies.name
output checkpointContainer string = checkpoints.name
output claimCheckContainer string = claimChecks.name
