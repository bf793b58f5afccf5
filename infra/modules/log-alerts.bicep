// Alerts on what the services log. Records take a minute or two to arrive, and more on a bad day, so a window is longer than its
// frequency: a record that comes late is in the next evaluation's window.
param location string
param tags { *: string }
param workspaceId string
@description('Ids of action groups, separated by commas; empty: the alerts are in the portal')
param actionGroupIds string
@description('What stands in the queries for {{producer}} and the like')
param names { *: string }
param alerts logAlert[]

@description('An alert on the number that a query makes')
type logAlert = {
  name: string
  description: string
  query: string
  column: string
  operator: 'GreaterThan' | 'LessThan'
  threshold: int
  // ISO 8601: the records that the query sees
  window: string
  frequency: string
  severity: int
  // Evaluations that are looked at, and how many of them must fail; one of one if it is left out
  periods: { of: int, failing: int }?
}

resource rules 'Microsoft.Insights/scheduledQueryRules@2026-03-01' = [
  for l in alerts: {
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
      autoMitigate: true
      // In a workspace that was made a minute ago a query may be refused because its table is not known yet. The queries
      // are compiled in tests instead.
      skipQueryValidation: true
      criteria: {
        allOf: [
          {
            query: reduce(items(names), l.query, (text, n) => replace(text, '{{${n.key}}}', n.value))
            metricMeasureColumn: l.column
            timeAggregation: 'Maximum'
            operator: l.operator
            threshold: l.threshold
            failingPeriods: {
              numberOfEvaluationPeriods: l.?periods.?of ?? 1
              minFailingPeriodsToAlert: l.?periods.?failing ?? 1
            }
          }
        ]
      }
      actions: { actionGroups: empty(actionGroupIds) ? [] : split(actionGroupIds, ',') }
    }
  }
]
