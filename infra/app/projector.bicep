// The projector: what `azd deploy` deploys, once for each new image. For each version of the projection there is an app, with a subscription
// and jobs of its own (projection.bicep).
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
@description('Image of all versions but the last, which were built from other code; empty: the same image')
param previousImage string = ''
@description('Image of the program that is the projection; empty: the projection is part of the projector')
param projectionImage string = ''
@description('Image of that program for all versions but the last; empty: the same image')
param previousProjectionImage string = ''
@minLength(1)
param identityId string
@minLength(1)
param identityClientId string
@minLength(1)
param scalerIdentityId string

@minLength(1)
param mongoSecretUri string
@minLength(1)
@description('Reads the source\'s connection string for the operators\' jobs')
param sourceIdentityId string
@minLength(1)
param sourceSecretUri string
@minLength(1)
param readModelDatabase string
@description('Empty: the only one that the program has, or timeline')
param projection string = ''
@description('The versions that run, the newest last, by commas: ../README.md, "A new version of the projection"')
param versions string = '1'
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

// What a projector is told, and the jobs with its image. A version adds its projection and its subscription.
var settings = [
  { name: 'AZURE_CLIENT_ID', value: identityClientId }
  { name: 'AZURE_TOKEN_CREDENTIALS', value: 'ManagedIdentityCredential' } // this one and no other
  { name: 'GOMEMLIMIT', value: sizes[size].limit }
  { name: 'MONGODB_URI', secretRef: 'mongodb-uri' }
  { name: 'READ_MODEL_DATABASE', value: readModelDatabase }
  { name: 'SERVICE_BUS_NAMESPACE', value: serviceBusNamespace }
  { name: 'SERVICE_BUS_TOPIC', value: topic }
  { name: 'SERVICE_BUS_QUEUE', value: queue }
  { name: 'BLOB_ACCOUNT_URL', value: blobAccountUrl } // for the bodies of large events
  { name: 'CLAIM_CHECK_CONTAINER', value: claimCheckContainer }
  { name: 'BLOB_CONTAINER', value: checkpointContainer } // this and the source: for verify, build and repair
  { name: 'SOURCE_DATABASE', value: sourceDatabase }
  { name: 'SOURCE_COLLECTION', value: sourceCollection }
  // The port of the program in projection.bicep, beside the projector's own.
  { name: 'PROJECTION_URL', value: empty(projectionImage) ? '' : 'http://127.0.0.1:8088' }
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

var programImage = empty(projectionImage) || !empty(projection)
  ? projectionImage
  : fail('PROJECTION is not set: the name that the program in PROJECTION_IMAGE declares; azd env set PROJECTION NAME')

var newest = last(split(versions, ','))

// A version above 1 has its number in the names of its app, jobs and subscription, as in ../resources.bicep.
module versioned 'projection.bicep' = [
  for version in split(versions, ','): {
    params: {
      name: version == '1' ? name : replace(name, 'projector-', 'projector-v${version}-')
      jobName: version == '1' ? jobName : replace(jobName, 'projector-', 'projector-v${version}-')
      watchName: version == '1' ? watchName : replace(watchName, 'watch-', 'watch-v${version}-')
      location: location
      environmentName: environmentName
      containerEnvironmentName: containerEnvironmentName
      registry: registry
      image: version == newest || empty(previousImage) ? image : previousImage
      projectionImage: version == newest || empty(previousProjectionImage) || empty(programImage)
        ? programImage
        : previousProjectionImage
      newest: version == newest
      version: version
      identityId: identityId
      scalerIdentityId: scalerIdentityId
      sourceIdentityId: sourceIdentityId
      sourceSecretUri: sourceSecretUri
      mongoSecretUri: mongoSecretUri
      settings: concat(settings, [
        { name: 'PROJECTION', value: version == '1' ? projection : '${projection}:${version}' }
        { name: 'SERVICE_BUS_SUBSCRIPTION', value: version == '1' ? subscription : '${projection}-v${version}' }
      ])
      serviceBusName: serviceBusName
      counted: empty(queue) && (empty(topic) || empty(subscription))
        ? fail('Either topic and subscription are set, or queue is')
        : empty(queue)
            ? { topicName: topic, subscriptionName: version == '1' ? subscription : '${projection}-v${version}' }
            : { queueName: queue }
      scale: scale
      cpu: sizes[size].cpu
      memory: sizes[size].memory
      watchCpu: sizes.small.cpu
      watchMemory: sizes.small.memory
      operatorsGroupId: operatorsGroupId
      actionGroupIds: actionGroupIds
    }
  }
]

// --- an alert on the jobs that watch: here, since an alert on what does not exist yet would fire at once

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

module logAlerts '../modules/log-alerts.bicep' = {
  dependsOn: [versioned]
  params: {
    location: location
    tags: { 'azd-env-name': environmentName, application: 'sluice' }
    workspaceId: workspaceId
    actionGroupIds: actionGroupIds
    names: {}
    alerts: logs
  }
}

output SERVICE_PROJECTOR_REVISION string = versioned[length(split(versions, ',')) - 1].outputs.revision
