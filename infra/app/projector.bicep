// The projector: what `azd deploy` deploys, once for each new image. As many replicas as there is work; no
// ingress, since nobody calls it.
//
// A rollout: both revisions receive for a while, which is safe, since a session has one holder and the guard in the read
// model decides about order anyway. Messages and position records stay readable for the version before and after.
@minLength(1)
param name string
@minLength(1)
@description('The job for operators')
param jobName string
@minLength(1)
@description('The job that watches')
param watchName string
@minLength(1)
param location string
@minLength(1)
param environmentName string
@minLength(1)
param containerEnvironmentName string
@minLength(1)
param registry string
@description('A group of people who may run the operator\'s commands; empty: none')
param operatorsGroupId string = ''
@description('Ids of action groups, separated by commas; empty: the alerts are in the portal')
param actionGroupIds string = ''
@minLength(1)
@description('Of the workspace that the logs are in')
param workspaceId string
@minLength(1)
param image string
@minLength(1)
param identityId string
@minLength(1)
param identityClientId string
@minLength(1)
param scalerIdentityId string

@minLength(1)
param mongoSecretUri string
@minLength(1)
param readModelDatabase string
@description('Empty: the only one that the program has, or timeline')
param projection string = ''
@minLength(1)
param serviceBusNamespace string
@minLength(1)
@description('The namespace without its domain: the scaler appends it')
param serviceBusName string
// azd takes empty for missing and would ask for it, hence the defaults.
@description('Either topic and subscription are not empty, or queue is')
param topic string = ''
param subscription string = ''
param queue string = ''

@minLength(1)
param blobAccountUrl string
@minLength(1)
param claimCheckContainer string
@minLength(1)
@description('The producer\'s, whose checkpoint verify, build and repair read')
param checkpointContainer string
@minLength(1)
param sourceDatabase string
@minLength(1)
param sourceCollection string

// azd fills in text, so numbers come as text.
param maxSessions string = '64'
param versionGapWait string = '30s'
param versionFirst string = '0'
@description('1 applies at once. With 0 a first message waits for a start, and only the scaler starts a replica: ../README.md, "Scaling"')
param minReplicas string = '1'
@description('At most the number of aggregates that change at the same time, divided by maxSessions')
param maxReplicas string = '5'
@description('Messages that wait for each replica that runs. See ../README.md, "Scaling", for why it is this')
param messagesPerReplica string = '500'
param logLevel string = 'info'
@description('Of the changes, the share that is traced, where the environment takes traces')
param traceShare string = '0.1'

@allowed(['small', 'medium', 'large'])
param size string = 'small'

// The Go runtime collects harder as it nears its limit, before the platform kills at the memory's.
var sizes = {
  small: { cpu: '0.25', memory: '0.5Gi', limit: '400MiB' }
  medium: { cpu: '0.5', memory: '1Gi', limit: '800MiB' }
  large: { cpu: '1', memory: '2Gi', limit: '1700MiB' }
}

// What preflight refuses, for a deployment that does not come from azd: with its words.
var scale = {
  maxReplicas: int(maxReplicas) < 1 || int(maxReplicas) > 1000
    ? fail('PROJECTOR_MAX_REPLICAS must be from 1 to 1000')
    : int(maxReplicas)
  minReplicas: int(minReplicas) < 0 || int(minReplicas) > 1000
    ? fail('PROJECTOR_MIN_REPLICAS must be from 0 to 1000')
    : int(minReplicas) > int(maxReplicas)
        ? fail('PROJECTOR_MIN_REPLICAS is above PROJECTOR_MAX_REPLICAS')
        : int(minReplicas)
  messages: int(messagesPerReplica) < 1
    ? fail('PROJECTOR_MESSAGES_PER_REPLICA must be a whole number above 0')
    : messagesPerReplica
}

// What the projector is told, and the jobs with its image.
var settings = [
  { name: 'AZURE_CLIENT_ID', value: identityClientId }
  { name: 'AZURE_TOKEN_CREDENTIALS', value: 'ManagedIdentityCredential' } // this one and no other
  { name: 'GOMEMLIMIT', value: sizes[size].limit }
  { name: 'MONGODB_URI', secretRef: 'mongodb-uri' }
  { name: 'READ_MODEL_DATABASE', value: readModelDatabase }
  { name: 'PROJECTION', value: projection }
  { name: 'SERVICE_BUS_NAMESPACE', value: serviceBusNamespace }
  { name: 'SERVICE_BUS_TOPIC', value: topic }
  { name: 'SERVICE_BUS_SUBSCRIPTION', value: subscription }
  { name: 'SERVICE_BUS_QUEUE', value: queue }
  { name: 'BLOB_ACCOUNT_URL', value: blobAccountUrl } // for the bodies of large events
  { name: 'CLAIM_CHECK_CONTAINER', value: claimCheckContainer }
  { name: 'BLOB_CONTAINER', value: checkpointContainer } // this and the source: for verify, build and repair
  { name: 'SOURCE_DATABASE', value: sourceDatabase }
  { name: 'SOURCE_COLLECTION', value: sourceCollection }
  { name: 'MAX_SESSIONS', value: maxSessions }
  { name: 'VERSION_GAP_WAIT', value: versionGapWait }
  { name: 'VERSION_FIRST', value: versionFirst }
  { name: 'MAX_DELIVERIES', value: '1000' } // the maxDeliveryCount of ../modules/servicebus.bicep
  { name: 'HTTP_ADDR', value: ':8080' }
  { name: 'SHUTDOWN_TIMEOUT', value: '20s' }
  { name: 'STATUS_INTERVAL', value: '15s' } // the alerts count on it
  { name: 'LOG_LEVEL', value: logLevel }
  { name: 'OTEL_TRACES_SAMPLER', value: 'parentbased_traceidratio' } // the producer decides for both
  { name: 'OTEL_TRACES_SAMPLER_ARG', value: traceShare }
]

resource environment 'Microsoft.App/managedEnvironments@2026-07-01' existing = {
  name: containerEnvironmentName
}

var counted = empty(queue) && (empty(topic) || empty(subscription))
  ? fail('Either topic and subscription are set, or queue is')
  : empty(queue) ? { topicName: topic, subscriptionName: subscription } : { queueName: queue }

resource projector 'Microsoft.App/containerApps@2025-07-01' = {
  name: name
  location: location
  tags: { 'azd-env-name': environmentName, application: 'sluice', 'azd-service-name': 'projector' }
  identity: { type: 'UserAssigned', userAssignedIdentities: { '${identityId}': {}, '${scalerIdentityId}': {} } }
  properties: {
    environmentId: environment.id
    workloadProfileName: 'Consumption'
    configuration: {
      activeRevisionsMode: 'Single'
      maxInactiveRevisions: 5 // to roll back to
      registries: [{ server: registry, identity: identityId }]
      secrets: [{ name: 'mongodb-uri', keyVaultUrl: mongoSecretUri, identity: identityId }]
      // The scaler's identity owns the subscription. No container of this app can ask for its token.
      identitySettings: [{ identity: scalerIdentityId, lifecycle: 'None' }]
    }
    template: {
      // SHUTDOWN_TIMEOUT, the closing of connections, and room for a slow machine.
      terminationGracePeriodSeconds: 45
      containers: [
        {
          name: 'projector'
          image: image
          resources: { cpu: json(sizes[size].cpu), memory: sizes[size].memory } // json: a fraction is no int
          env: settings
          // Without ingress the platform adds none of its own. Liveness asks for nothing but the process; readiness waits
          // for the first connection, so that a revision with a wrong secret does not replace one that works.
          probes: [
            { type: 'Startup', httpGet: { path: '/livez', port: 8080 }, periodSeconds: 3, failureThreshold: 10 }
            { type: 'Liveness', httpGet: { path: '/livez', port: 8080 }, periodSeconds: 10, failureThreshold: 3 }
            { type: 'Readiness', httpGet: { path: '/readyz', port: 8080 }, periodSeconds: 5, failureThreshold: 3 }
          ]
        }
      ]
      scale: {
        minReplicas: scale.minReplicas
        maxReplicas: scale.maxReplicas
        pollingInterval: 15 // seconds; a poll costs 10 of the 1,000 credits a second that Standard has
        cooldownPeriod: 300 // seconds without messages before the last replica stops
        rules: [
          {
            name: 'messages'
            custom: {
              type: 'azure-servicebus'
              identity: scalerIdentityId
              // Any message wakes it up: without activationMessageCount, more than 0 is enough.
              metadata: union(counted, { namespace: serviceBusName, messageCount: scale.messages })
            }
          }
        ]
      }
    }
  }
}

// The operator's commands: doctor, status, verify, parked. A verification of everything takes its time.
module operate 'job.bicep' = {
  params: {
    name: jobName
    location: location
    tags: { 'azd-env-name': environmentName, application: 'sluice', 'sluice-commands': 'projector' }
    environmentId: environment.id
    registry: registry
    image: image
    identityId: identityId
    mongoSecretUri: mongoSecretUri
    args: ['help']
    operatorsGroupId: operatorsGroupId
    settings: settings
    cpu: sizes[size].cpu
    memory: sizes[size].memory
    timeoutSeconds: 21600
  }
}

// Tells every five minutes what waits for the projector, whether one runs or not: the alerts stalled, dead-letters and parked.
module watch 'job.bicep' = {
  params: {
    name: watchName
    location: location
    tags: { 'azd-env-name': environmentName, application: 'sluice' }
    environmentId: environment.id
    registry: registry
    image: image
    identityId: identityId
    mongoSecretUri: mongoSecretUri
    args: ['status', '--log']
    settings: settings
    cpu: sizes.small.cpu
    memory: sizes.small.memory
    schedule: '*/5 * * * *'
    timeoutSeconds: 120
  }
}

// --- alerts on the projector and its jobs: here, since an alert on an app that does not exist yet would fire at once

var metrics = [
  {
    name: 'projector-restarts'
    description: 'A projector\'s container has been restarted four times or more: it crashes, also if it does so before its first record.'
    when: true
    scope: projector.id
    kind: 'Microsoft.App/containerapps'
    dimensions: []
    metric: 'RestartCount' // since the replica began
    aggregation: 'Maximum'
    operator: 'GreaterThan'
    threshold: 3
    window: 'PT15M'
    severity: 2
  }
  {
    name: 'watch-failed'
    description: 'The job that watches has failed three times in an hour: what it asks is away for the projector, too.'
    when: true
    scope: resourceId('Microsoft.App/jobs', watchName)
    kind: 'Microsoft.App/jobs'
    dimensions: [{ name: 'state', values: ['Failed'] }]
    metric: 'Executions'
    aggregation: 'Total'
    operator: 'GreaterThan'
    threshold: 2
    window: 'PT1H'
    severity: 2
  }
]

var logs = [
  {
    name: 'watch-silent'
    description: 'The job that watches has not logged all its counts for 20 minutes: what it asks is away for the projector, too.'
    query: loadTextContent('../queries/watch-silent.kql')
    column: 'watch_records'
    operator: 'LessThan'
    threshold: 1
    window: 'PT20M'
    frequency: 'PT10M'
    severity: 2
    periods: { of: 2, failing: 2 }
  }
]

module metricAlerts '../modules/metric-alerts.bicep' = {
  dependsOn: [watch]
  params: { tags: alertTags, actionGroupIds: actionGroupIds, alerts: metrics }
}

module logAlerts '../modules/log-alerts.bicep' = {
  params: {
    location: location
    tags: alertTags
    workspaceId: workspaceId
    actionGroupIds: actionGroupIds
    names: { projector: name }
    alerts: logs
  }
}

var alertTags = { 'azd-env-name': environmentName, application: 'sluice' }

output SERVICE_PROJECTOR_REVISION string = projector.properties.latestRevisionName
