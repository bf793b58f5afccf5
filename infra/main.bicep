// What `azd provision` creates: one resource group with everything but the two container apps, which `azd deploy` adds
// (app/producer.bicep, app/projector.bicep) once their images exist. So an app's first revision runs its own image, and
// roles have had time to take effect before anything needs them.
targetScope = 'subscription'

@minLength(1)
@maxLength(40)
@description('Name of the azd environment; part of names, and on everything as the tag azd-env-name')
param environmentName string

@minLength(1)
@description('Region of every resource')
param location string

// --- the source and the read models

@allowed(['external', 'documentdb', 'demo'])
@description('external: the MongoDB URIs are given. documentdb: an Azure DocumentDB cluster is created and takes the place of a URI that is empty. demo: a MongoDB in a container, whose data is lost with it, to try Sluice with')
param mongoMode string = 'external'

@secure()
@description('Connection string of the source: a user with the role read on the watched database, nothing more')
param sourceMongoUri string = ''

@secure()
@description('Connection string of the read models: a user with readWrite on the read-model database. Empty: the source\'s, with what its user may do')
param readModelMongoUri string = ''

@secure()
@description('Password of the DocumentDB cluster\'s administrator; only with mongoMode documentdb')
param documentDbPassword string = ''

// Without a default azd would ask for these two, and preflight would not see the answers.
@description('Database that is watched; required, but for the demo')
param mongoDatabase string = ''

@description('Collection that is watched; required, but for the demo')
param mongoCollection string = ''

@description('Database of the read models')
param readModelDatabase string = 'readmodel'

// --- Service Bus

@allowed(['Standard', 'Premium'])
@description('Standard carries about 326 messages a second through a topic; Premium scales by messaging units')
param serviceBusSku string = 'Standard'

@allowed([1, 2, 4, 8, 16])
@description('Messaging units; only with Premium')
param messagingUnits int = 1

@allowed(['topic', 'queue'])
@description('topic: others can subscribe, too. queue: one consumer group only, and half as much again through Standard')
param entityKind string = 'topic'

@description('Spread the entity over partitions. Cannot be changed later')
param partitioned bool = false

@description('Region that the namespace\'s data is replicated to; only with Premium. Empty: none')
param replicaRegion string = ''

@minValue(0)
@maxValue(86400)
@description('Seconds that the replica may lag behind. 0: each send waits for both regions')
param replicaLagSeconds int = 300

// --- the projection

@description('The projection that runs; empty: the only one that the program has, or timeline')
param projection string = ''

@description('The versions of it that run, the newest last, by commas. Each has an app, an operators\' job and a subscription')
param projectionVersions string = '1'

// --- operation

@description('Receives the alerts; empty: they are shown in the portal only')
param alertEmail string = ''

@description('Ids of action groups that there are already, separated by commas: they receive the alerts, too')
param actionGroupIds string = ''

@description('Object id of a Microsoft Entra group whose members are on call: they may start the operators\' jobs and look at messages, blobs and the read models\' URI. Empty: nobody but those who may already')
param operatorsGroupId string = ''

@description('Others subscribe to the topic as well. Metrics count for all of them, so the alert on the backlog is left out')
param othersSubscribe bool = false

@minValue(1)
@description('Hours that the source\'s oplog is certain to reach back (Atlas: "minimum oplog window")')
param oplogHours int = 24

@minValue(1)
@description('Seconds from a change to its effect above which an alert fires')
param lagAlertSeconds int = 30

@minValue(30)
@maxValue(730)
@description('Days that logs are kept')
param logRetentionDays int = 30

@description('Send traces to Application Insights, through the agent of Container Apps')
param traces bool = false

@description('Bypass for throw-away environments: without purge protection, a deleted vault\'s name is free again after "azd down --purge"')
param purgeProtection bool = true

@description('Recover the vault of an environment of this name that was taken down within the last seven days')
param recoverVault bool = false

@description('Lock the storage account against deletion: it holds the checkpoints. azd down needs the lock gone first')
param deleteLock bool = true

@allowed(['Standard_ZRS', 'Standard_LRS'])
@description('Of the storage account. Standard_LRS only where the region has no availability zones: the lease then lives in one data centre')
param storageRedundancy string = 'Standard_ZRS'

@minValue(0)
@description('What a month may cost, in the subscription\'s currency: a mail to alertEmail at 80 % of it, and when it is forecast to be exceeded. 0: no budget')
param monthlyBudget int = 0

// --- network

@allowed(['public', 'vnet', 'private'])
@description('public: closed by identity. vnet: the apps are in a virtual network, and what goes out has a fixed address. private: by network as well, with private endpoints; needs Premium. Fixed when the environment is made')
param networkMode string = 'public'

@description('Addresses of the virtual network, /24 or larger; only if it is made here')
param networkPrefix string = '10.80.0.0/24'

@description('Id of a subnet that there is already, /27 or larger, delegated to Microsoft.App/environments, for the apps; empty: a network is made')
param subnetId string = ''

@description('Id of a subnet that there is already for the private endpoints; only with networkMode private and subnetId')
param endpointSubnetId string = ''

@description('Id of the resource group with the private DNS zones that there are already, linked to the network; empty: they are made')
param privateDnsZonesGroupId string = ''

var tags = { 'azd-env-name': environmentName, application: 'sluice' }
var abbreviations = loadJsonContent('abbreviations.json')

resource group 'Microsoft.Resources/resourceGroups@2025-04-01' = {
  name: '${abbreviations.resourceGroup}${environmentName}'
  location: location
  tags: tags
}

// Nothing of a demo is worth a lock, or a name that stays taken.
var demo = mongoMode == 'demo'

// What preflight refuses, for a deployment that does not come from azd: with its words.
var checked = {
  mongoDatabase: !empty(mongoDatabase)
    ? mongoDatabase
    : demo ? 'shop' : fail('MONGODB_DATABASE is not set: the database to watch; azd env set MONGODB_DATABASE NAME')
  mongoCollection: !empty(mongoCollection)
    ? mongoCollection
    : demo
        ? 'events'
        : fail('MONGODB_COLLECTION is not set: the collection to watch; azd env set MONGODB_COLLECTION NAME')
  projectionVersions: length(filter(split(projectionVersions, ','), v => int(v) < 1 || int(v) > 999)) > 0
    ? fail('PROJECTION_VERSIONS must be whole numbers from 1 to 999, separated by commas')
    : projectionVersions != '1' && entityKind == 'queue'
        ? fail('PROJECTION_VERSIONS needs SERVICE_BUS_ENTITY_KIND=topic: a queue has no second reader')
        : projectionVersions != '1' && empty(projection)
            ? fail('PROJECTION is not set, and PROJECTION_VERSIONS names subscriptions by it; azd env set PROJECTION NAME')
            : projectionVersions
  networkMode: networkMode == 'private' && serviceBusSku != 'Premium'
    ? fail('NETWORK=private needs SERVICE_BUS_SKU=Premium: Standard has no private endpoints')
    : networkMode == 'public' && !empty(subnetId)
        ? fail('SUBNET_ID needs NETWORK=vnet or private')
        : networkMode
  endpointSubnetId: networkMode == 'private' && !empty(subnetId) && empty(endpointSubnetId)
    ? fail('ENDPOINT_SUBNET_ID is not set: NETWORK=private with SUBNET_ID needs a subnet for the private endpoints, too')
    : endpointSubnetId
  networkPrefix: int(last(split(networkPrefix, '/'))) > 24
    ? fail('NETWORK_PREFIX must be /24 or larger, such as 10.80.0.0/24')
    : networkPrefix
  replicaRegion: !empty(replicaRegion) && serviceBusSku != 'Premium'
    ? fail('SERVICE_BUS_REPLICA_REGION needs SERVICE_BUS_SKU=Premium: Standard is not replicated')
    : !empty(replicaRegion) && replicaRegion == location
        ? fail('SERVICE_BUS_REPLICA_REGION is the region itself')
        : replicaRegion
  replicaLagSeconds: !empty(replicaRegion) && replicaLagSeconds > 0 && replicaLagSeconds < 300
    ? fail('SERVICE_BUS_REPLICA_LAG_SECONDS is neither 0 nor from 300 to 86400, which is what Service Bus takes')
    : replicaLagSeconds
}
// Secrets stand in no variable.
var sourceMissing = mongoMode == 'external' && empty(sourceMongoUri)
var passwordMissing = mongoMode == 'documentdb' && empty(documentDbPassword)
var passwordWrong = mongoMode == 'documentdb' && (length(documentDbPassword) < 8 || length(documentDbPassword) > 128)

module resources 'resources.bicep' = {
  scope: group
  params: {
    location: location
    tags: tags
    mongoMode: sourceMissing
      ? fail('SOURCE_MONGODB_URI is not set: a connection string; azd env set-secret SOURCE_MONGODB_URI')
      : passwordMissing
          ? fail('DOCUMENTDB_PASSWORD is not set: of the new cluster, 8 characters or more; azd env set-secret DOCUMENTDB_PASSWORD')
          : passwordWrong ? fail('DOCUMENTDB_PASSWORD must have from 8 to 128 characters') : mongoMode
    sourceMongoUri: sourceMongoUri
    readModelMongoUri: readModelMongoUri
    documentDbPassword: documentDbPassword
    serviceBusSku: serviceBusSku
    messagingUnits: messagingUnits
    entityKind: entityKind
    projection: projection
    projectionVersions: checked.projectionVersions
    partitioned: partitioned
    replicaRegion: checked.replicaRegion
    replicaLagSeconds: checked.replicaLagSeconds
    alertEmail: alertEmail
    actionGroupIds: actionGroupIds
    othersSubscribe: othersSubscribe
    operatorsGroupId: operatorsGroupId
    oplogHours: oplogHours
    lagAlertSeconds: lagAlertSeconds
    logRetentionDays: logRetentionDays
    traces: traces
    purgeProtection: purgeProtection && !demo
    recoverVault: recoverVault
    deleteLock: deleteLock && !demo
    storageRedundancy: storageRedundancy
    monthlyBudget: monthlyBudget
    networkMode: checked.networkMode
    networkPrefix: checked.networkPrefix
    subnetId: subnetId
    endpointSubnetId: checked.endpointSubnetId
    privateDnsZonesGroupId: privateDnsZonesGroupId
  }
}

// azd keeps every output as a variable of its environment; the parameter files of the apps read them there. No output is
// a secret: identities take the place of keys, and the MongoDB URIs are named by where they lie in Key Vault.
output AZURE_LOCATION string = location
output AZURE_RESOURCE_GROUP string = group.name
output AZURE_CONTAINER_ENVIRONMENT_NAME string = resources.outputs.containerEnvironmentName
output AZURE_CONTAINER_REGISTRY_NAME string = resources.outputs.registryName
output AZURE_CONTAINER_REGISTRY_ENDPOINT string = resources.outputs.registryEndpoint
output AZURE_KEY_VAULT_NAME string = resources.outputs.vaultName
output ALERT_ACTION_GROUP_IDS string = resources.outputs.actionGroupIds
output AZURE_LOG_ANALYTICS_ID string = resources.outputs.workspaceId
output AZURE_LOG_ANALYTICS_NAME string = resources.outputs.workspaceName
output BLOB_ACCOUNT_URL string = resources.outputs.blobUrl
output BLOB_CONTAINER string = resources.outputs.checkpointContainer
output CHECKPOINT_COPIES_CONTAINER string = resources.outputs.copiesContainer
output CLAIM_CHECK_CONTAINER string = resources.outputs.claimCheckContainer
output COPY_JOB_NAME string = resources.outputs.copyName
output MONGODB_COLLECTION string = checked.mongoCollection
output MONGODB_DATABASE string = checked.mongoDatabase
output OUTBOUND_ADDRESS string = resources.outputs.outboundAddress
output READ_MODEL_DATABASE string = readModelDatabase
output READ_MODEL_SECRET_URI string = resources.outputs.readModelSecretUri
output SCALER_IDENTITY_ID string = resources.outputs.scalerIdentityId
output SERVICE_BUS_NAMESPACE string = resources.outputs.serviceBusEndpoint
output SERVICE_BUS_NAMESPACE_NAME string = resources.outputs.serviceBusName
output SERVICE_BUS_QUEUE string = resources.outputs.queueName
output SERVICE_BUS_SUBSCRIPTION string = resources.outputs.subscriptionName
output SERVICE_BUS_TOPIC string = resources.outputs.topicName
output SERVICE_PRODUCER_IDENTITY_CLIENT_ID string = resources.outputs.producerClientId
output SERVICE_PRODUCER_IDENTITY_ID string = resources.outputs.producerIdentityId
output SERVICE_PRODUCER_JOB_NAME string = resources.outputs.producerJobName
output SERVICE_PRODUCER_NAME string = resources.outputs.producerName
output SERVICE_PROJECTOR_IDENTITY_CLIENT_ID string = resources.outputs.projectorClientId
output SERVICE_PROJECTOR_IDENTITY_ID string = resources.outputs.projectorIdentityId
output SERVICE_PROJECTOR_JOB_NAME string = resources.outputs.projectorJobName
output SERVICE_PROJECTOR_NAME string = resources.outputs.projectorName
output SOURCE_IDENTITY_ID string = resources.outputs.sourceIdentityId
output SOURCE_SECRET_URI string = resources.outputs.sourceSecretUri
output WATCH_JOB_NAME string = resources.outputs.watchName
