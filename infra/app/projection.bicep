// One version of the projection: its app, its operators' job and the job that watches it. As many replicas as there is work; no
// ingress, since nobody calls it.
//
// A rollout: both revisions receive for a while, which is safe, since a session has one holder and the guard in the read
// model decides about order anyway. Messages and position records stay readable for the version before and after.
param name string
param jobName string
param watchName string
param location string
param environmentName string
param containerEnvironmentName string
param registry string
param image string
@description('Image of the program that is the projection: a second container; empty: none')
param projectionImage string
@description('azd finds one app of the service by its tag: the newest version\'s')
param newest bool
@description('Of the projection')
param version string
param identityId string
param scalerIdentityId string
param sourceIdentityId string
param sourceSecretUri string
param mongoSecretUri string
param settings setting[]
param serviceBusName string
@description('What the scaler counts: topicName and subscriptionName, or queueName')
param counted { *: string }
param scale { minReplicas: int, maxReplicas: int, messages: string }
param cpu string
param memory string
@description('Of the job that watches')
param watchCpu string
param watchMemory string
param operatorsGroupId string
param actionGroupIds string

@description('An environment variable: its value, or the secret that has it')
type setting = {
  name: string
  value: string?
  secretRef: string?
}

// The program is asked for its declaration, and killed only if it has not answered for a minute: an event that
// takes it long is the projector's to judge (PROJECTION_TIMEOUT). It has as much as the projector, so the sum
// stays one that Container Apps takes.
var program = empty(projectionImage)
  ? []
  : [
      {
        name: 'projection'
        image: projectionImage
        resources: { cpu: json(cpu), memory: memory }
        env: [{ name: 'PORT', value: '8088' }]
        probes: [
          { type: 'Startup', httpGet: { path: '/projection', port: 8088 }, periodSeconds: 3, failureThreshold: 40 }
          {
            type: 'Liveness'
            httpGet: { path: '/projection', port: 8088 }
            periodSeconds: 10
            timeoutSeconds: 10
            failureThreshold: 6
          }
        ]
      }
    ]

resource environment 'Microsoft.App/managedEnvironments@2026-07-01' existing = {
  name: containerEnvironmentName
}

resource projector 'Microsoft.App/containerApps@2025-07-01' = {
  name: name
  location: location
  tags: union(
    { 'azd-env-name': environmentName, application: 'sluice', 'sluice-version': version },
    newest ? { 'azd-service-name': 'projector' } : {}
  )
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
      containers: concat(
        [
          {
            name: 'projector'
            image: image
            resources: { cpu: json(cpu), memory: memory } // json: a fraction is no int
            env: settings
            // Without ingress the platform adds none of its own. Liveness asks for nothing but the process; readiness waits
            // for the first connection, so that a revision with a wrong secret does not replace one that works.
            probes: [
              { type: 'Startup', httpGet: { path: '/livez', port: 8080 }, periodSeconds: 3, failureThreshold: 10 }
              { type: 'Liveness', httpGet: { path: '/livez', port: 8080 }, periodSeconds: 10, failureThreshold: 3 }
              { type: 'Readiness', httpGet: { path: '/readyz', port: 8080 }, periodSeconds: 5, failureThreshold: 3 }
            ]
          }
        ],
        program
      )
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

// The operator's commands: doctor, status, verify, parked, build. A build or a verification of everything takes its time, and a build that is ended goes on when it is run again.
module operate 'job.bicep' = {
  params: {
    name: jobName
    location: location
    tags: {
      'azd-env-name': environmentName
      application: 'sluice'
      'sluice-commands': 'projector'
      'sluice-version': version
    }
    environmentId: environment.id
    registry: registry
    image: image
    identityId: identityId
    sourceIdentityId: sourceIdentityId
    sourceSecretUri: sourceSecretUri
    mongoSecretUri: mongoSecretUri
    args: ['help']
    operatorsGroupId: operatorsGroupId
    settings: settings
    projectionImage: projectionImage
    cpu: cpu
    memory: memory
    timeoutSeconds: 21600
  }
}

// Tells every five minutes what waits for the projector, whether one runs or not; it needs no program, because the read-model
// database holds the declaration: the alerts stalled, dead-letters and parked.
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
    cpu: watchCpu
    memory: watchMemory
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

module metricAlerts '../modules/metric-alerts.bicep' = {
  dependsOn: [watch]
  params: {
    tags: { 'azd-env-name': environmentName, application: 'sluice' }
    actionGroupIds: actionGroupIds
    suffix: version == '1' ? '' : '-v${version}'
    alerts: metrics
  }
}

output revision string = projector.properties.latestRevisionName
