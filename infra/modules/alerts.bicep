// The alerts, each of which should fire before data is lost. What the platform counts itself comes from metrics; what only
// the services know comes from the status records that they log every 15 seconds; what a projector that is dead cannot tell
// comes from the job that watches, every five minutes (../queries, one file each). What to do about each of them: ../README.md,
// "Runbook".
//
// Log records take a minute or two to arrive, so a log alert fires that much later than its condition holds.
param location string
param tags object
param workspaceId string
param namespaceId string
param entityName string
param premium bool
@description('Others subscribe to the topic: what metrics count is then not the projector\'s alone')
param othersSubscribe bool
param storageId string
param actionGroupName string
@description('Empty: no action group; the alerts are in the portal')
param email string
param producerName string
param projectorName string
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

var actionGroups = empty(email) ? [] : [actionGroup.id]

// --- from the platform's metrics

var metrics = [
  {
    name: 'backlog'
    description: 'Messages pile up: the projector is away, too small, or its database is.'
    when: !othersSubscribe // a metric counts a topic's messages for all of its subscriptions
    of: 'entity'
    metric: 'ActiveMessages'
    aggregation: 'Average'
    threshold: backlogMessages
    window: 'PT15M'
    severity: 2
  }
  {
    name: 'throttled'
    description: 'Service Bus turns requests away: the tier is too small for the load.'
    when: true
    of: 'entity'
    metric: 'ThrottledRequests'
    aggregation: 'Total'
    threshold: 0
    window: 'PT15M'
    severity: 3
  }
  {
    name: 'cpu'
    description: 'The namespace\'s processors are busy: requests wait, and soon they are turned away.'
    when: premium
    of: 'namespace'
    metric: 'NamespaceCpuUsage'
    aggregation: 'Average'
    threshold: 70
    window: 'PT15M'
    severity: 3
  }
  {
    name: 'memory'
    description: 'The namespace\'s memory is nearly full: many receivers, or a large backlog.'
    when: premium
    of: 'namespace'
    metric: 'NamespaceMemoryUsage'
    aggregation: 'Average'
    threshold: 90
    window: 'PT15M'
    severity: 3
  }
  {
    name: 'storage'
    description: 'The storage account fails requests: a leader that cannot write its checkpoint stops.'
    when: true
    of: 'storage'
    metric: 'Availability'
    aggregation: 'Average'
    threshold: 99
    window: 'PT5M'
    severity: 1
  }
]

// Where a metric is from: the scope, its namespace and its dimensions.
var sources = {
  entity: {
    scope: namespaceId
    kind: 'Microsoft.ServiceBus/namespaces'
    dimensions: [{ name: 'EntityName', operator: 'Include', values: [entityName] }]
  }
  namespace: { scope: namespaceId, kind: 'Microsoft.ServiceBus/namespaces', dimensions: [] }
  storage: { scope: storageId, kind: 'Microsoft.Storage/storageAccounts', dimensions: [] }
}

resource metricAlerts 'Microsoft.Insights/metricAlerts@2018-03-01' = [
  for m in metrics: if (m.when) {
    name: 'sluice-${m.name}'
    location: 'global'
    tags: tags
    properties: {
      description: m.description
      severity: m.severity
      enabled: true
      scopes: [sources[m.of].scope]
      evaluationFrequency: 'PT1M'
      windowSize: m.window
      autoMitigate: true
      criteria: {
        'odata.type': 'Microsoft.Azure.Monitor.SingleResourceMultipleMetricCriteria'
        allOf: [
          {
            criterionType: 'StaticThresholdCriterion'
            name: m.name
            metricNamespace: sources[m.of].kind
            metricName: m.metric
            dimensions: sources[m.of].dimensions
            timeAggregation: m.aggregation
            operator: m.of == 'storage' ? 'LessThan' : 'GreaterThan' // availability is what is well
            threshold: m.threshold
          }
        ]
      }
      actions: [for id in actionGroups: { actionGroupId: id }]
    }
  }
]

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
  }
  {
    name: 'producer-silent'
    description: 'No producer has said anything for five minutes: none runs, or no log arrives.'
    query: loadTextContent('../queries/producer-silent.kql')
    column: 'records'
    operator: 'LessThan'
    threshold: 1
    window: 'PT5M'
    range: 'P2D'
    frequency: 'PT5M'
    severity: 0
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
    name: 'watch-silent'
    description: 'The job that watches has not told all it should for 20 minutes: what it asks is away for the projector, too.'
    query: loadTextContent('../queries/watch-silent.kql')
    column: 'watch_records'
    operator: 'LessThan'
    threshold: 1
    window: 'PT15M'
    range: 'P2D'
    frequency: 'PT15M'
    severity: 2
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
    window: 'PT5M'
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
    window: 'PT5M'
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
    window: 'PT5M'
    frequency: 'PT5M'
    severity: 1
  }
  {
    name: 'restarts'
    description: 'A container was restarted: it crashed, or did not answer its liveness probe.'
    query: loadTextContent('../queries/restarts.kql')
    column: 'restarts'
    operator: 'GreaterThan'
    threshold: 2
    window: 'PT15M'
    frequency: 'PT5M'
    severity: 2
  }
  {
    name: 'errors'
    description: 'A service logged an error: it stopped, or history is lost.'
    query: loadTextContent('../queries/errors.kql')
    column: 'errors'
    operator: 'GreaterThan'
    threshold: 0
    window: 'PT5M'
    frequency: 'PT5M'
    severity: 1
  }
]

resource logAlerts 'Microsoft.Insights/scheduledQueryRules@2023-12-01' = [
  for l in logs: {
    name: 'sluice-${l.name}'
    location: location
    tags: tags
    kind: 'LogAlert'
    properties: {
      displayName: 'sluice-${l.name}'
      description: l.description
      severity: l.severity
      enabled: true
      scopes: [workspaceId]
      evaluationFrequency: l.frequency
      windowSize: l.window
      overrideQueryTimeRange: l.?range // of the query, where it looks further back than the window
      autoMitigate: true
      // In a workspace that was made a minute ago a query may be refused because its table is not known yet. The queries
      // are compiled in tests instead.
      skipQueryValidation: true
      criteria: {
        allOf: [
          {
            query: replace(
              replace(replace(l.query, '{{producer}}', producerName), '{{projector}}', projectorName),
              '{{oplogMinutes}}',
              string(oplogHours * 60)
            )
            metricMeasureColumn: l.column
            timeAggregation: 'Maximum'
            operator: l.operator
            threshold: l.threshold
            failingPeriods: { numberOfEvaluationPeriods: 1, minFailingPeriodsToAlert: 1 }
          }
        ]
      }
      actions: { actionGroups: actionGroups }
    }
  }
]
