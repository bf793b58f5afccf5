// The Service Bus namespace and the one entity the changes go through, with the roles on it. No keys: local
// authentication is off, so a connection string for it cannot be made.
//
// Sessions, duplicate detection and partitioning are fixed when an entity is created: to change one of them, make another
// entity and move the apps to it (README, "Changing what cannot be changed").
param location string
param tags { *: string }
param name string
@description('Reached through private endpoints only')
param privateNetwork bool
@description('Where its own logs go')
param workspaceId string

@allowed(['Standard', 'Premium'])
param sku string
@allowed([1, 2, 4, 8, 16])
param messagingUnits int
@allowed(['topic', 'queue'])
param entityKind string
@description('Of the topic: one for each version of the projection')
param subscriptions string[]
param partitioned bool
@description('Region that the data is replicated to, and how far it may lag behind; empty: none')
param replicaRegion string
param replicaLagSeconds int

param producerIdentity string
param projectorIdentity string
param scalerIdentity string
@description('A group of people; empty: none')
param operatorsGroupId string

@description('ISO 8601. How long the broker remembers message ids. It costs throughput, and only spares the projector duplicates, which its own guard would see')
param duplicateDetectionWindow string = 'PT10M'

@description('ISO 8601, at most PT5M. The sessions of a replica that was killed wait this long')
param lockDuration string = 'PT1M'

@minValue(1)
@description('Deliveries after which the broker dead-letters by itself, and later events overtake. The projector dead-letters what is poison at once, spreads redeliveries, and parks what comes near this number (MAX_DELIVERIES, which must say the same), so it is large')
param maxDeliveryCount int = 1000

var premium = sku == 'Premium'
var useTopic = entityKind == 'topic'
var entity = 'changes'
// Standard partitions an entity. Premium partitions the namespace, at most once for each messaging unit, and then takes only
// entities that say they are partitioned.
var namespacePartitions = partitioned ? min(messagingUnits, 4) : 1
var entityPartitioned = partitioned && (!premium || namespacePartitions > 1)
// The least a quota may be in Standard is 1 GB, the most 5 GB: room for a backlog while the projector is away.
var megabytes = premium ? 81920 : 5120

// Whoever promotes the replica changes the roles; a provision after that would ask for them as they stand here (README, "Another region").
var replicated = premium && !empty(replicaRegion)
var replication = {
  maxReplicationLagDurationInSeconds: replicaLagSeconds
  locations: [
    { locationName: location, roleType: 'Primary' }
    { locationName: replicaRegion, roleType: 'Secondary' }
  ]
}

var dataOwner = subscriptionResourceId(
  'Microsoft.Authorization/roleDefinitions',
  '090c5cfd-751d-490a-894a-3ce6f1109419'
)
var dataReceiver = subscriptionResourceId(
  'Microsoft.Authorization/roleDefinitions',
  '4f6d3b9b-027b-4f4c-9142-0e5a2a2247e0'
)
var dataSender = subscriptionResourceId(
  'Microsoft.Authorization/roleDefinitions',
  '69a216fc-b8fb-44d8-bc22-1f3c2cd27a39'
)

resource producer 'Microsoft.ManagedIdentity/userAssignedIdentities@2024-11-30' existing = {
  name: producerIdentity
}

resource projector 'Microsoft.ManagedIdentity/userAssignedIdentities@2024-11-30' existing = {
  name: projectorIdentity
}

resource scaler 'Microsoft.ManagedIdentity/userAssignedIdentities@2024-11-30' existing = {
  name: scalerIdentity
}

resource namespace 'Microsoft.ServiceBus/namespaces@2026-01-01' = {
  name: name
  location: location
  tags: tags
  sku: premium ? { name: 'Premium', tier: 'Premium', capacity: messagingUnits } : { name: 'Standard', tier: 'Standard' }
  properties: {
    disableLocalAuth: true
    minimumTlsVersion: '1.2'
    publicNetworkAccess: privateNetwork ? 'Disabled' : 'Enabled'
    premiumMessagingPartitions: premium ? namespacePartitions : null
    geoDataReplication: replicated ? replication : null
  }
}

#disable-next-line use-recent-api-versions // the stable version is older and has another form
resource diagnostics 'Microsoft.Insights/diagnosticSettings@2021-05-01-preview' = {
  name: 'to-workspace'
  scope: namespace
  properties: {
    workspaceId: workspaceId
    logs: [{ categoryGroup: 'allLogs', enabled: true }]
  }
}

// No default time to live here or below: a message that expires is a change that is lost.
resource topic 'Microsoft.ServiceBus/namespaces/topics@2024-01-01' = if (useTopic) {
  parent: namespace
  name: entity
  properties: {
    requiresDuplicateDetection: true
    duplicateDetectionHistoryTimeWindow: duplicateDetectionWindow
    enablePartitioning: entityPartitioned
    supportOrdering: !entityPartitioned
    maxSizeInMegabytes: megabytes
  }
}

module projections 'subscription.bicep' = [
  for name in useTopic ? subscriptions : []: {
    params: {
      namespaceName: namespace.name
      topicName: topic.name
      name: name
      lockDuration: lockDuration
      maxDeliveryCount: maxDeliveryCount
      projectorIdentity: projectorIdentity
      scalerIdentity: scalerIdentity
      operatorsGroupId: operatorsGroupId
    }
  }
]

resource queue 'Microsoft.ServiceBus/namespaces/queues@2024-01-01' = if (!useTopic) {
  parent: namespace
  name: entity
  properties: {
    requiresSession: true
    requiresDuplicateDetection: true
    duplicateDetectionHistoryTimeWindow: duplicateDetectionWindow
    lockDuration: lockDuration
    maxDeliveryCount: maxDeliveryCount
    deadLetteringOnMessageExpiration: true
    enablePartitioning: entityPartitioned
    maxSizeInMegabytes: megabytes
  }
}

// The producer sends: to the topic or queue, and can receive nothing.
resource producerTopic 'Microsoft.Authorization/roleAssignments@2022-04-01' = if (useTopic) {
  name: guid(topic.id, producer.id, dataSender)
  scope: topic
  properties: {
    principalId: producer.properties.principalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: dataSender
  }
}

resource producerQueue 'Microsoft.Authorization/roleAssignments@2022-04-01' = if (!useTopic) {
  name: guid(queue.id, producer.id, dataSender)
  scope: queue
  properties: {
    principalId: producer.properties.principalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: dataSender
  }
}

// The projector receives, and can send nothing.
resource projectorQueue 'Microsoft.Authorization/roleAssignments@2022-04-01' = if (!useTopic) {
  name: guid(queue.id, projector.id, dataReceiver)
  scope: queue
  properties: {
    principalId: projector.properties.principalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: dataReceiver
  }
}

resource operatorsQueue 'Microsoft.Authorization/roleAssignments@2022-04-01' = if (!useTopic && !empty(operatorsGroupId)) {
  name: guid(queue.id, operatorsGroupId, dataReceiver)
  scope: queue
  properties: {
    principalId: operatorsGroupId
    principalType: 'Group'
    roleDefinitionId: dataReceiver
  }
}

resource scalerQueue 'Microsoft.Authorization/roleAssignments@2022-04-01' = if (!useTopic) {
  name: guid(queue.id, scaler.id, dataOwner)
  scope: queue
  properties: {
    principalId: scaler.properties.principalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: dataOwner
  }
}

output id string = namespace.id
output name string = namespace.name
output endpoint string = '${namespace.name}.servicebus.windows.net'
output entityName string = entity
output entityMegabytes int = megabytes
// Exactly one kind is not empty, which is what the services ask for.
output topicName string = useTopic ? entity : ''
output subscriptionName string = useTopic ? 'projector' : ''
output queueName string = useTopic ? '' : entity
