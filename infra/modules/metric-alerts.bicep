// Alerts on what the platform counts: they need no log, and fire within a minute or two.
param tags { *: string }
@description('Ids of action groups, separated by commas; empty: the alerts are in the portal')
param actionGroupIds string
@description('Behind the names of the alerts, where there are several sets')
param suffix string = ''
param alerts metricAlert[]

@description('An alert on a metric of one resource')
type metricAlert = {
  name: string
  description: string
  // False: it is left out
  when: bool
  scope: string
  // The type of the resource
  kind: string
  metric: string
  aggregation: 'Average' | 'Maximum' | 'Minimum' | 'Total'
  dimensions: { name: string, values: string[] }[]
  operator: 'GreaterThan' | 'LessThan'
  threshold: int
  // ISO 8601
  window: string
  severity: int
}

resource rules 'Microsoft.Insights/metricAlerts@2026-01-01' = [
  for m in filter(alerts, a => a.when): {
    name: 'sluice-${m.name}${suffix}'
    location: 'global'
    tags: tags
    properties: {
      description: m.description
      severity: m.severity
      enabled: true
      scopes: [m.scope]
      evaluationFrequency: 'PT1M'
      windowSize: m.window
      autoMitigate: true
      criteria: {
        'odata.type': 'Microsoft.Azure.Monitor.SingleResourceMultipleMetricCriteria'
        allOf: [
          {
            criterionType: 'StaticThresholdCriterion'
            name: m.name
            metricNamespace: m.kind
            metricName: m.metric
            dimensions: map(m.dimensions, d => { name: d.name, operator: 'Include', values: d.values })
            timeAggregation: m.aggregation
            operator: m.operator
            threshold: m.threshold
            skipMetricValidation: true // a resource that was made a minute ago has emitted nothing yet
          }
        ]
      }
      actions: [for id in empty(actionGroupIds) ? [] : split(actionGroupIds, ','): { actionGroupId: id }]
    }
  }
]
