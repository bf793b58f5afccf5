// The producer: what `azd deploy` deploys, once for each new image. Two replicas, of which one leads; no ingress, since
// nobody calls it.
//
// A rollout (revision mode Single): the new revision's two replicas start, take part in the election as standbys and are
// ready as such, beside the old two. Then the platform stops the old ones. Their leader gets SIGTERM, sends what is in
// flight, writes its last checkpoint, releases the lease, and a new replica leads within a second. If readiness meant
// leading, the new revision would never be ready and the rollout would hang.
@minLength(1)
param name string
@minLength(1)
@description('The job for operators')
param jobName string
@minLength(1)
@description('The job that copies the checkpoint')
param copyName string
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
param mongoSecretUri string
@minLength(1)
param mongoDatabase string
@minLength(1)
param mongoCollection string
@minLength(1)
param serviceBusNamespace string
// azd takes empty for missing and would ask for it, hence the defaults.
@description('Exactly one of topic and queue is not empty')
param topic string = ''
param queue string = ''
@minLength(1)
param blobAccountUrl string
@minLength(1)
param blobContainer string
@minLength(1)
@description('Where the copies go')
param copiesContainer string

@minLength(1)
param claimCheckContainer string

param startFrom string = 'latest'
@description('RFC 3339; only with startFrom timestamp')
param startAt string = ''
param onHistoryLost string = 'fail'
@description('Documents of a snapshot per second; 0: as many as possible')
param snapshotRate string = '0'
@description('Documents of a snapshot that are read as of one moment')
param snapshotChunk string = '1000'
param snapshotReadPreference string = 'primary'
param aggregateIdPath string = 'aggregateId'
@description('Updates and deletes need a collection that keeps images: ../../docs/configure.md')
param operations string = 'insert,update,replace,delete'
param onUnknownAggregate string = 'fail'
param fullDocument string = 'updateLookup'
param fullDocumentBeforeChange string = 'whenAvailable'
@description('Cannot be changed under way: ../../docs/configure.md, "Sessions"')
param sessionKey string = 'aggregate'
param logLevel string = 'info'
@description('Of the changes, the share that is traced, where the environment takes traces')
param traceShare string = '0.1'

@allowed(['small', 'medium', 'large'])
param size string = 'small'

// Below 80 MB in memory by design, a standby below 30: what is bought here is processor. The Go runtime collects harder
// as it nears its limit, before the platform kills at the memory's.
var sizes = {
  small: { cpu: '0.25', memory: '0.5Gi', limit: '400MiB' }
  medium: { cpu: '0.5', memory: '1Gi', limit: '800MiB' }
  large: { cpu: '1', memory: '2Gi', limit: '1700MiB' }
}

// What the producer is told, and the jobs with its image.
var settings = concat(
  [
    { name: 'AZURE_CLIENT_ID', value: identityClientId }
    { name: 'AZURE_TOKEN_CREDENTIALS', value: 'ManagedIdentityCredential' } // this one and no other
    { name: 'GOMEMLIMIT', value: sizes[size].limit }
    { name: 'MONGODB_URI', secretRef: 'mongodb-uri' }
    { name: 'MONGODB_DATABASE', value: mongoDatabase }
    { name: 'MONGODB_COLLECTION', value: mongoCollection }
    { name: 'SERVICE_BUS_NAMESPACE', value: serviceBusNamespace }
    { name: 'SERVICE_BUS_TOPIC', value: topic }
    { name: 'SERVICE_BUS_QUEUE', value: queue }
    { name: 'BLOB_ACCOUNT_URL', value: blobAccountUrl }
    { name: 'BLOB_CONTAINER', value: blobContainer }
    { name: 'ON_OVERSIZE', value: 'claimcheck' } // the container and the right to it are there
    { name: 'CLAIM_CHECK_CONTAINER', value: claimCheckContainer }
    { name: 'START_FROM', value: startFrom }
    { name: 'ON_HISTORY_LOST', value: onHistoryLost }
    { name: 'SNAPSHOT_RATE', value: snapshotRate }
    { name: 'SNAPSHOT_CHUNK', value: snapshotChunk }
    { name: 'SNAPSHOT_READ_PREFERENCE', value: snapshotReadPreference }
    { name: 'AGGREGATE_ID_PATH', value: aggregateIdPath }
    { name: 'OPERATIONS', value: operations }
    { name: 'ON_UNKNOWN_AGGREGATE', value: onUnknownAggregate }
    { name: 'FULL_DOCUMENT', value: fullDocument }
    { name: 'FULL_DOCUMENT_BEFORE_CHANGE', value: fullDocumentBeforeChange }
    { name: 'SESSION_KEY', value: sessionKey }
    { name: 'HTTP_ADDR', value: ':8080' }
    { name: 'SHUTDOWN_TIMEOUT', value: '20s' }
    { name: 'STATUS_INTERVAL', value: '15s' } // the alerts count on it
    { name: 'LOG_LEVEL', value: logLevel }
    { name: 'OTEL_TRACES_SAMPLER', value: 'parentbased_traceidratio' } // the producer decides for both
    { name: 'OTEL_TRACES_SAMPLER_ARG', value: traceShare }
  ],
  empty(startAt) ? [] : [{ name: 'START_AT', value: startAt }] // empty is no time
)

resource environment 'Microsoft.App/managedEnvironments@2026-07-01' existing = {
  name: containerEnvironmentName
}

resource producer 'Microsoft.App/containerApps@2025-07-01' = {
  name: name
  location: location
  tags: { 'azd-env-name': environmentName, application: 'sluice', 'azd-service-name': 'producer' }
  identity: { type: 'UserAssigned', userAssignedIdentities: { '${identityId}': {} } }
  properties: {
    environmentId: environment.id
    workloadProfileName: 'Consumption'
    configuration: {
      activeRevisionsMode: 'Single'
      maxInactiveRevisions: 5 // to roll back to
      registries: [{ server: registry, identity: identityId }]
      secrets: [{ name: 'mongodb-uri', keyVaultUrl: mongoSecretUri, identity: identityId }]
    }
    template: {
      // SHUTDOWN_TIMEOUT, 2 s to close connections, and room for a slow machine.
      terminationGracePeriodSeconds: 45
      containers: [
        {
          name: 'producer'
          image: image
          resources: { cpu: json(sizes[size].cpu), memory: sizes[size].memory } // json: a fraction is no int
          env: settings
          // Without ingress the platform adds none of its own. None of them asks for MongoDB, Service Bus or storage: a
          // restart would not bring those back.
          probes: [
            { type: 'Startup', httpGet: { path: '/livez', port: 8080 }, periodSeconds: 3, failureThreshold: 10 }
            { type: 'Liveness', httpGet: { path: '/livez', port: 8080 }, periodSeconds: 10, failureThreshold: 3 }
            { type: 'Readiness', httpGet: { path: '/readyz', port: 8080 }, periodSeconds: 5, failureThreshold: 3 }
          ]
        }
      ]
      // One leads and one stands by. More would not send more; the third is room for the platform to move one.
      scale: { minReplicas: 2, maxReplicas: 3 }
    }
  }
}

// The operator's commands: doctor, status, token, session-key, lease.
module operate 'job.bicep' = {
  params: {
    name: jobName
    location: location
    tags: { 'azd-env-name': environmentName, application: 'sluice', 'sluice-commands': 'producer' }
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
    timeoutSeconds: 3600
  }
}

// An hourly copy of the checkpoint. What is older than 30 days is deleted by the container's own rule.
module copy 'job.bicep' = {
  params: {
    name: copyName
    location: location
    tags: { 'azd-env-name': environmentName, application: 'sluice' }
    environmentId: environment.id
    registry: registry
    image: image
    identityId: identityId
    mongoSecretUri: mongoSecretUri
    args: ['token', 'copy', '--container', copiesContainer]
    settings: settings
    cpu: sizes.small.cpu
    memory: sizes.small.memory
    schedule: '7 * * * *'
    timeoutSeconds: 120
  }
}

// --- alerts on the producer and its jobs: here, since an alert on an app that does not exist yet would fire at once

var appKind = 'Microsoft.App/containerapps'
var jobKind = 'Microsoft.App/jobs'

var metrics = [
  {
    name: 'producer-gone'
    description: 'No replica of the producer runs: nothing is published.'
    when: true
    scope: producer.id
    kind: appKind
    dimensions: []
    metric: 'Replicas'
    aggregation: 'Maximum'
    operator: 'LessThan'
    threshold: 1
    window: 'PT5M'
    severity: 0
  }
  {
    name: 'producer-restarts'
    description: 'A producer\'s container has been restarted four times or more: it crashes, also if it does so before its first record.'
    when: true
    scope: producer.id
    kind: appKind
    dimensions: []
    metric: 'RestartCount' // since the replica began
    aggregation: 'Maximum'
    operator: 'GreaterThan'
    threshold: 3
    window: 'PT15M'
    severity: 2
  }
  {
    name: 'copies-failed'
    description: 'The job that copies the checkpoint has failed: the copies become old.'
    when: true
    scope: resourceId('Microsoft.App/jobs', copyName)
    kind: jobKind
    dimensions: [{ name: 'state', values: ['Failed'] }]
    metric: 'Executions'
    aggregation: 'Total'
    operator: 'GreaterThan'
    threshold: 0
    window: 'PT1H'
    severity: 2
  }
]

var logs = [
  {
    name: 'producer-silent'
    description: 'No producer has logged for ten minutes: none runs, or no log arrives.'
    query: loadTextContent('../queries/producer-silent.kql')
    column: 'records'
    operator: 'LessThan'
    threshold: 1
    window: 'PT10M'
    frequency: 'PT5M'
    severity: 1
    periods: { of: 2, failing: 2 } // logs are late now and then; producer-gone does not wait for them
  }
]

module metricAlerts '../modules/metric-alerts.bicep' = {
  dependsOn: [copy]
  params: { tags: alertTags, actionGroupIds: actionGroupIds, alerts: metrics }
}

module logAlerts '../modules/log-alerts.bicep' = {
  params: {
    location: location
    tags: alertTags
    workspaceId: workspaceId
    actionGroupIds: actionGroupIds
    names: { producer: name }
    alerts: logs
  }
}

var alertTags = { 'azd-env-name': environmentName, application: 'sluice' }

output SERVICE_PRODUCER_REVISION string = producer.properties.latestRevisionName
