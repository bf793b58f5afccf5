// The alerts, each of which should fire before data is lost. What the platform counts itself comes from metrics; what only
// the services know comes from the status records that they log every 15 seconds; what a projector that is dead cannot tell
// comes from the job that watches, every five minutes (../queries, one file each). What to do about each of them: ../README.md,
// "Runbook".
//
// Log records take a minute or two to arrive, so a log alert fires that much later than its condition holds. The alerts on the
// apps and jobs are where those are made: ../app/producer.bicep, ../app/projector.bicep.
param location string
param tags { *: string }
param workspaceId string
param namespaceId string
param entityName string
@description('What the topic or queue holds at most')
param entityMegabytes int
param premium bool
@description('Others subscribe to the topic: what metrics count is then not the projector\'s alone')
param othersSubscribe bool
param storageId string
param actionGroupName string
@description('Empty: no action group; the alerts are in the portal')
param email string
@description('Ids of action groups that there are already, separated by commas; empty: none')
param existingActionGroupIds string
param producerName string
@description('In a list of the query language: the texts between quotation marks, without the first and the last mark')
param projectorNames string
param oplogHours int
param lagSeconds int

@description('Messages waiting on average over 15 minutes above which the backlog alert fires')
param backlogMessages int = 10000

resource actionGroup 'Microsoft.Insights/actionGroups@2023-01-01' = if (!empty(email)) {
  name: actionGroupName
  location: 'global'
  tags: tags
  properties: {
    groupShortName: 'sluice'
    enabled: true
    emailReceivers: [{ name: 'operators', emailAddress: email, useCommonAlertSchema: true }]
  }
}

var actionGroupIds = join(
  concat(
    empty(email) ? [] : [resourceId('Microsoft.Insights/actionGroups', actionGroupName)],
    empty(existingActionGroupIds) ? [] : split(existingActionGroupIds, ',')
  ),
  ','
)

// --- from the platform's metrics

var namespaceKind = 'Microsoft.ServiceBus/namespaces'
var entity = [{ name: 'EntityName', values: [entityName] }]

var metrics = [
  {
    name: 'backlog'
    description: 'Messages pile up: the projector is away, too small, or its database is.'
    when: !othersSubscribe // a metric counts a topic's messages for all of its subscriptions
    scope: namespaceId
    kind: namespaceKind
    dimensions: entity
    metric: 'ActiveMessages'
    aggregation: 'Average'
    operator: 'GreaterThan'
    threshold: backlogMessages
    window: 'PT15M'
    severity: 2
  }
  {
    name: 'topic-full'
    description: 'The topic or queue is 70 % full: when it is full, sends fail and nothing is published. A subscription that nobody reads fills it, too.'
    when: true
    scope: namespaceId
    kind: namespaceKind
    dimensions: entity
    metric: 'Size'
    aggregation: 'Maximum'
    operator: 'GreaterThan'
    threshold: entityMegabytes * 734003 // bytes: 70 % of 1,048,576
    window: 'PT15M'
    severity: 1
  }
  {
    name: 'throttled'
    description: 'Service Bus turns requests away: the tier is too small for the load.'
    when: true
    scope: namespaceId
    kind: namespaceKind
    dimensions: [] // credits are the namespace's, and requests of its administration belong to no entity
    metric: 'ThrottledRequests'
    aggregation: 'Total'
    operator: 'GreaterThan'
    threshold: 0
    window: 'PT15M'
    severity: 3
  }
  {
    name: 'service-bus-errors'
    description: 'Service Bus fails requests by faults of its own.'
    when: true
    scope: namespaceId
    kind: namespaceKind
    dimensions: []
    metric: 'ServerErrors'
    aggregation: 'Total'
    operator: 'GreaterThan'
    threshold: 10
    window: 'PT15M'
    severity: 3
  }
  {
    name: 'cpu'
    description: 'The namespace\'s processors are busy: requests wait, and soon they are turned away.'
    when: premium
    scope: namespaceId
    kind: namespaceKind
    dimensions: []
    metric: 'NamespaceCpuUsage'
    aggregation: 'Average'
    operator: 'GreaterThan'
    threshold: 70
    window: 'PT15M'
    severity: 3
  }
  {
    name: 'memory'
    description: 'The namespace\'s memory is nearly full: many receivers, or a large backlog.'
    when: premium
    scope: namespaceId
    kind: namespaceKind
    dimensions: []
    metric: 'NamespaceMemoryUsage'
    aggregation: 'Average'
    operator: 'GreaterThan'
    threshold: 90
    window: 'PT15M'
    severity: 3
  }
  {
    name: 'storage'
    description: 'The storage account fails requests: a leader that cannot write its checkpoint stops.'
    when: true
    scope: storageId
    kind: 'Microsoft.Storage/storageAccounts'
    dimensions: []
    metric: 'Availability'
    aggregation: 'Average'
    operator: 'LessThan'
    threshold: 99
    window: 'PT5M'
    severity: 1
  }
]

module metricAlerts 'metric-alerts.bicep' = {
  params: { tags: tags, actionGroupIds: actionGroupIds, alerts: metrics }
}

// --- from the services' own words

var logs = [
  {
    name: 'no-leader'
    description: 'Producers run and none has led for a minute: nothing is published.'
    query: loadTextContent('../queries/no-leader.kql')
    column: 'seconds_without_leader'
    operator: 'GreaterThan'
    threshold: 60
    window: 'PT5M'
    frequency: 'PT1M'
    severity: 0
    periods: { of: 3, failing: 2 } // the two producers' records come by two ways, one of which may be late
  }
  {
    name: 'publishing-behind'
    description: 'A producer leads, and for five minutes it has published nothing of what the source has: the topic is full, Service Bus away, a right lost, or the change stream hangs.'
    query: loadTextContent('../queries/publishing-behind.kql')
    column: 'behind_seconds'
    operator: 'GreaterThan'
    threshold: lagSeconds * 10
    window: 'PT5M'
    frequency: 'PT5M'
    severity: 1
  }
  {
    name: 'stalled'
    description: 'Messages have waited for 15 minutes and nothing was applied: no projector runs, or none gets on.'
    query: loadTextContent('../queries/stalled.kql')
    column: 'stalled_sessions'
    operator: 'GreaterThan'
    threshold: 0
    window: 'PT15M'
    frequency: 'PT5M'
    severity: 1
  }
  {
    name: 'platform'
    description: 'The platform has trouble with an app: it cannot count messages, pull the image, or keep the container running.'
    query: loadTextContent('../queries/platform.kql')
    column: 'troubled_minutes'
    operator: 'GreaterThan'
    threshold: 2
    window: 'PT15M'
    frequency: 'PT5M'
    severity: 1
  }
  {
    name: 'dead-letters'
    description: 'Messages lie in the dead-letter queue: changes that are in no read model.'
    query: loadTextContent('../queries/dead-letters.kql')
    column: 'dead_letters'
    operator: 'GreaterThan'
    threshold: 0
    window: 'PT15M'
    frequency: 'PT5M'
    severity: 1
  }
  {
    name: 'checkpoint-old'
    description: 'The checkpoint has not moved for a minute: after a failure, that much would be sent again.'
    query: loadTextContent('../queries/checkpoint-old.kql')
    column: 'checkpoint_age_seconds'
    operator: 'GreaterThan'
    threshold: 60
    window: 'PT5M'
    frequency: 'PT5M'
    severity: 1
  }
  {
    name: 'oplog-headroom'
    description: 'Half of the oplog\'s certain reach is used up: when all is, changes are lost.'
    query: loadTextContent('../queries/oplog-headroom.kql')
    column: 'headroom_minutes'
    operator: 'LessThan'
    threshold: oplogHours * 30
    window: 'PT5M'
    frequency: 'PT5M'
    severity: 0
  }
  {
    name: 'lag'
    description: 'Changes take too long to reach the read model.'
    query: loadTextContent('../queries/lag.kql')
    column: 'lag_seconds'
    operator: 'GreaterThan'
    threshold: lagSeconds
    window: 'PT10M'
    frequency: 'PT5M'
    severity: 2
  }
  {
    name: 'slo-fast'
    description: 'Changes are not visible within 5 s so often that a month\'s budget (0.1 %) would be gone in two days.'
    query: loadTextContent('../queries/slo-fast.kql')
    column: 'burn_percent'
    operator: 'GreaterThan'
    threshold: 1440
    window: 'PT1H'
    frequency: 'PT5M'
    severity: 1
  }
  {
    name: 'slo-slow'
    description: 'Changes are not visible within 5 s so often that a month\'s budget (0.1 %) would be gone in five days.'
    query: loadTextContent('../queries/slo-slow.kql')
    column: 'burn_percent'
    operator: 'GreaterThan'
    threshold: 600
    window: 'PT6H'
    frequency: 'PT15M'
    severity: 2
  }
  {
    name: 'parked'
    description: 'An aggregate is parked: its read model stands still until somebody decides.'
    query: loadTextContent('../queries/parked.kql')
    column: 'parked'
    operator: 'GreaterThan'
    threshold: 0
    window: 'PT15M'
    frequency: 'PT5M'
    severity: 1
  }
  {
    name: 'collection-replaced'
    description: 'The watched collection was replaced by another one, whose documents are in no change stream.'
    query: loadTextContent('../queries/collection-replaced.kql')
    column: 'replaced'
    operator: 'GreaterThan'
    threshold: 0
    window: 'PT15M'
    frequency: 'PT5M'
    severity: 1
  }
  {
    name: 'refused'
    description: 'Service Bus refused a message, which the producer has set aside: it is in no read model.'
    query: loadTextContent('../queries/refused.kql')
    column: 'refused'
    operator: 'GreaterThan'
    threshold: 0
    window: 'PT15M'
    frequency: 'PT5M'
    severity: 1
  }
  {
    name: 'errors'
    description: 'A service logged an error: it stopped, or history is lost.'
    query: loadTextContent('../queries/errors.kql')
    column: 'errors'
    operator: 'GreaterThan'
    threshold: 0
    window: 'PT15M'
    frequency: 'PT5M'
    severity: 1
  }
]

module logAlerts 'log-alerts.bicep' = {
  params: {
    location: location
    tags: tags
    workspaceId: workspaceId
    actionGroupIds: actionGroupIds
    names: { producer: producerName, projector: projectorNames, oplogMinutes: string(oplogHours * 60) }
    alerts: logs
  }
}

// --- from Azure's own record: a rule whose query keeps failing is disabled, and then it is silent

resource rulesHealth 'Microsoft.Insights/activityLogAlerts@2026-01-01' = {
  name: 'sluice-rules-unhealthy'
  location: 'global'
  tags: tags
  properties: {
    description: 'A rule on logs cannot be evaluated, or Azure has disabled it: its alert is blind.'
    enabled: true
    scopes: [resourceGroup().id]
    condition: {
      allOf: [
        { field: 'category', equals: 'ResourceHealth' }
        { field: 'resourceType', equals: 'Microsoft.Insights/scheduledQueryRules' }
        {
          anyOf: [
            { field: 'properties.currentHealthStatus', equals: 'Degraded' }
            { field: 'properties.currentHealthStatus', equals: 'Unavailable' }
          ]
        }
      ]
    }
    actions: {
      actionGroups: map(empty(actionGroupIds) ? [] : split(actionGroupIds, ','), id => { actionGroupId: id })
    }
  }
}

output actionGroupIds string = actionGroupIds
