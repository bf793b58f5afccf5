// One subscription of the topic, for one version of the projection, with the roles on it. Whether it takes sessions is fixed when it is
// made. It keeps every message from then on, whether anything reads it or not, and fills the topic in the end.
param namespaceName string
param topicName string
param name string
@description('ISO 8601')
param lockDuration string
param maxDeliveryCount int
param projectorIdentity string
param scalerIdentity string
@description('A group of people; empty: none')
param operatorsGroupId string

var dataOwner = subscriptionResourceId(
  'Microsoft.Authorization/roleDefinitions',
  '090c5cfd-751d-490a-894a-3ce6f1109419'
)
var dataReceiver = subscriptionResourceId(
  'Microsoft.Authorization/roleDefinitions',
  '4f6d3b9b-027b-4f4c-9142-0e5a2a2247e0'
)

resource projector 'Microsoft.ManagedIdentity/userAssignedIdentities@2024-11-30' existing = {
  name: projectorIdentity
}

resource scaler 'Microsoft.ManagedIdentity/userAssignedIdentities@2024-11-30' existing = {
  name: scalerIdentity
}

resource namespace 'Microsoft.ServiceBus/namespaces@2026-01-01' existing = {
  name: namespaceName
}

resource topic 'Microsoft.ServiceBus/namespaces/topics@2024-01-01' existing = {
  parent: namespace
  name: topicName
}

resource projection 'Microsoft.ServiceBus/namespaces/topics/subscriptions@2024-01-01' = {
  parent: topic
  name: name
  properties: {
    requiresSession: true
    lockDuration: lockDuration
    maxDeliveryCount: maxDeliveryCount
    deadLetteringOnMessageExpiration: true
    deadLetteringOnFilterEvaluationExceptions: true
  }
}

// The projector receives: from its own subscription, which includes its dead-letter queue, and can send nothing.
resource projectorSubscription 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(projection.id, projector.id, dataReceiver)
  scope: projection
  properties: {
    principalId: projector.properties.principalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: dataReceiver
  }
}

// Operators look at what waits and at the dead-letter queue (the portal's Service Bus Explorer). What they take out there is lost
// to the read model, so it is the receiver's right and no more.
resource operatorsSubscription 'Microsoft.Authorization/roleAssignments@2022-04-01' = if (!empty(operatorsGroupId)) {
  name: guid(projection.id, operatorsGroupId, dataReceiver)
  scope: projection
  properties: {
    principalId: operatorsGroupId
    principalType: 'Group'
    roleDefinitionId: dataReceiver
  }
}

// The scaler reads one number, the count of active messages, and no built-in role below Data Owner has that right for
// certain (it is the Manage claim). So it is Owner of the one thing it counts, under an identity of its own that no
// container can use. Where the projector does not wake up, see the runbook in ../README.md: this scope comes first.
resource scalerSubscription 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(projection.id, scaler.id, dataOwner)
  scope: projection
  properties: {
    principalId: scaler.properties.principalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: dataOwner
  }
}
