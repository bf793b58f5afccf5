// The modules and how they hang together. Each module makes one thing together with the roles on it, so that who may do
// what can be read in one place: where the thing is.
param location string
param tags { *: string }

param mongoMode string
@secure()
param sourceMongoUri string
@secure()
param readModelMongoUri string
@secure()
param documentDbPassword string

param projection string
param projectionVersions string

param serviceBusSku string
param messagingUnits int
param entityKind string
param partitioned bool
param replicaRegion string
param replicaLagSeconds int

param alertEmail string
param actionGroupIds string
param othersSubscribe bool
param operatorsGroupId string
param oplogHours int
param lagAlertSeconds int
param logRetentionDays int
param traces bool
param purgeProtection bool
param recoverVault bool
param deleteLock bool
param storageRedundancy string
param monthlyBudget int
param networkMode string
param networkPrefix string
param subnetId string
param endpointSubnetId string
param privateDnsZonesGroupId string

var abbreviations = loadJsonContent('abbreviations.json')
var token = toLower(uniqueString(subscription().id, resourceGroup().id, location))
var environmentName = '${abbreviations.containerAppsEnvironment}${token}'

// Container app names have at most 32 characters; the apps are made by azd deploy, and alerts name them before.
var producerName = '${abbreviations.containerApp}producer-${token}'
var projectorName = '${abbreviations.containerApp}projector-${token}'
var producerJobName = '${abbreviations.containerAppsJob}producer-${token}'
// A version above 1 has its number in the names of its app, jobs and subscription; app/projector.bicep makes the apps' in the same way.
var versions = split(projectionVersions, ',')
var projectorNames = map(
  versions,
  v => v == '1' ? projectorName : replace(projectorName, 'projector-', 'projector-v${v}-')
)
var subscriptions = map(versions, v => v == '1' ? 'projector' : '${projection}-v${v}')
var projectorJobName = '${abbreviations.containerAppsJob}projector-${token}'
var copyName = '${abbreviations.containerAppsJob}copies-${token}'
var watchName = '${abbreviations.containerAppsJob}watch-${token}'

// Every name is known before the deployment starts, so that a preview shows every change. An output of a module is not, so
// names are given to the modules, which wait for each other by dependsOn. For the same reason role assignments are named by
// the identity's resource id. The price: if an identity is deleted and created again, its old assignments have the names of
// the new ones and must be deleted first (../docs/troubleshooting.md).
var producerIdentity = '${abbreviations.managedIdentity}producer-${token}'
var projectorIdentity = '${abbreviations.managedIdentity}projector-${token}'
var scalerIdentity = '${abbreviations.managedIdentity}scaler-${token}'
var sourceIdentity = '${abbreviations.managedIdentity}source-${token}'
var vaultName = '${abbreviations.keyVault}${token}'
var applicationInsightsName = '${abbreviations.applicationInsights}${token}'

var demoName = '${abbreviations.containerApp}mongodb-${token}'
var demoUri = 'mongodb://${demoName}:27017/?directConnection=true'

var privateNetwork = networkMode == 'private'
var makeNetwork = networkMode != 'public' && empty(subnetId)
var inZones = storageRedundancy == 'Standard_ZRS' // the region has them

module identities 'modules/identities.bicep' = {
  params: {
    location: location
    tags: tags
    producerName: producerIdentity
    projectorName: projectorIdentity
    scalerName: scalerIdentity
    sourceName: sourceIdentity
  }
}

module monitoring 'modules/monitoring.bicep' = {
  params: {
    location: location
    tags: tags
    workspaceName: '${abbreviations.logAnalytics}${token}'
    applicationInsightsName: applicationInsightsName
    retentionDays: logRetentionDays
    traces: traces
  }
}

module network 'modules/network.bicep' = if (makeNetwork) {
  params: {
    location: location
    tags: tags
    name: '${abbreviations.virtualNetwork}${token}'
    addressPrefix: networkPrefix
    zones: inZones ? ['1', '2', '3'] : []
  }
}

module environment 'modules/environment.bicep' = {
  dependsOn: [monitoring]
  params: {
    location: location
    tags: tags
    name: environmentName
    subnetId: networkMode == 'public' ? '' : network.?outputs.appsSubnetId ?? subnetId
    zoneRedundant: inZones
    applicationInsightsName: traces ? applicationInsightsName : ''
  }
}

module demoMongoDb 'modules/demo-mongodb.bicep' = if (mongoMode == 'demo') {
  dependsOn: [environment]
  params: { location: location, tags: tags, name: demoName, environmentName: environmentName }
}

module environmentLogs 'modules/environment-logs.bicep' = {
  dependsOn: [environment]
  params: { environmentName: environmentName, workspaceId: monitoring.outputs.workspaceId }
}

module registry 'modules/registry.bicep' = {
  dependsOn: [identities]
  params: {
    location: location
    tags: tags
    name: '${abbreviations.containerRegistry}${token}'
    privateNetwork: privateNetwork
    workspaceId: monitoring.outputs.workspaceId
    producerIdentity: producerIdentity
    projectorIdentity: projectorIdentity
  }
}

module storage 'modules/storage.bicep' = {
  dependsOn: [identities]
  params: {
    location: location
    tags: tags
    name: '${abbreviations.storageAccount}${token}'
    privateNetwork: privateNetwork
    workspaceId: monitoring.outputs.workspaceId
    deleteLock: deleteLock
    redundancy: storageRedundancy
    operatorsGroupId: operatorsGroupId
    producerIdentity: producerIdentity
    projectorIdentity: projectorIdentity
  }
}

module serviceBus 'modules/servicebus.bicep' = {
  dependsOn: [identities]
  params: {
    location: location
    tags: tags
    name: '${abbreviations.serviceBusNamespace}${token}'
    privateNetwork: privateNetwork
    workspaceId: monitoring.outputs.workspaceId
    sku: serviceBusSku
    messagingUnits: messagingUnits
    entityKind: entityKind
    subscriptions: subscriptions
    partitioned: partitioned
    replicaRegion: replicaRegion
    replicaLagSeconds: replicaLagSeconds
    producerIdentity: producerIdentity
    projectorIdentity: projectorIdentity
    scalerIdentity: scalerIdentity
    operatorsGroupId: operatorsGroupId
  }
}

module documentDb 'modules/documentdb.bicep' = if (mongoMode == 'documentdb') {
  dependsOn: [vault]
  params: {
    location: location
    tags: tags
    name: '${abbreviations.documentDb}${token}'
    privateNetwork: privateNetwork
    workspaceId: monitoring.outputs.workspaceId
    password: documentDbPassword
    vaultName: vaultName
    writeSource: empty(sourceMongoUri)
    writeReadModel: empty(readModelMongoUri)
  }
}

module vault 'modules/keyvault.bicep' = {
  params: {
    location: location
    tags: tags
    name: vaultName
    privateNetwork: privateNetwork
    workspaceId: monitoring.outputs.workspaceId
    purgeProtection: purgeProtection
    recover: recoverVault
    fillSource: mongoMode != 'documentdb' || !empty(sourceMongoUri)
    fillReadModel: mongoMode != 'documentdb' || !empty(readModelMongoUri)
    sourceMongoUri: mongoMode == 'demo' ? demoUri : sourceMongoUri
    readModelMongoUri: mongoMode == 'demo' ? demoUri : empty(readModelMongoUri) ? sourceMongoUri : readModelMongoUri
  }
}

// After both ways to fill the secrets: a role on a secret needs the secret.
module vaultAccess 'modules/keyvault-access.bicep' = {
  dependsOn: [vault, documentDb, identities]
  params: {
    vaultName: vaultName
    operatorsGroupId: operatorsGroupId
    producerIdentity: producerIdentity
    projectorIdentity: projectorIdentity
    sourceIdentity: sourceIdentity
  }
}

// --- with NETWORK=private, an address inside the network for each of what the apps talk to

module serviceBusEndpoint 'modules/private-endpoint.bicep' = if (privateNetwork) {
  params: {
    location: location
    tags: tags
    name: '${abbreviations.privateEndpoint}servicebus-${token}'
    resourceId: serviceBus.outputs.id
    group: 'namespace'
    zone: 'privatelink.servicebus.windows.net'
    zonesGroupId: privateDnsZonesGroupId
    subnetId: network.?outputs.endpointsSubnetId ?? endpointSubnetId
  }
}

module blobsEndpoint 'modules/private-endpoint.bicep' = if (privateNetwork) {
  params: {
    location: location
    tags: tags
    name: '${abbreviations.privateEndpoint}blobs-${token}'
    resourceId: storage.outputs.id
    group: 'blob'
    zone: 'privatelink.blob.${az.environment().suffixes.storage}'
    zonesGroupId: privateDnsZonesGroupId
    subnetId: network.?outputs.endpointsSubnetId ?? endpointSubnetId
  }
}

module vaultEndpoint 'modules/private-endpoint.bicep' = if (privateNetwork) {
  params: {
    location: location
    tags: tags
    name: '${abbreviations.privateEndpoint}vault-${token}'
    resourceId: vault.outputs.id
    group: 'vault'
    zone: 'privatelink.vaultcore.azure.net'
    zonesGroupId: privateDnsZonesGroupId
    subnetId: network.?outputs.endpointsSubnetId ?? endpointSubnetId
  }
}

module registryEndpoint 'modules/private-endpoint.bicep' = if (privateNetwork) {
  params: {
    location: location
    tags: tags
    name: '${abbreviations.privateEndpoint}registry-${token}'
    resourceId: registry.outputs.id
    group: 'registry'
    zone: 'privatelink${az.environment().suffixes.acrLoginServer}'
    zonesGroupId: privateDnsZonesGroupId
    subnetId: network.?outputs.endpointsSubnetId ?? endpointSubnetId
  }
}

module documentDbEndpoint 'modules/private-endpoint.bicep' = if (privateNetwork && mongoMode == 'documentdb') {
  params: {
    location: location
    tags: tags
    name: '${abbreviations.privateEndpoint}documentdb-${token}'
    resourceId: documentDb.?outputs.id ?? ''
    group: 'MongoCluster'
    zone: 'privatelink.mongocluster.cosmos.azure.com'
    zonesGroupId: privateDnsZonesGroupId
    subnetId: network.?outputs.endpointsSubnetId ?? endpointSubnetId
  }
}

module alerts 'modules/alerts.bicep' = {
  params: {
    location: location
    tags: tags
    workspaceId: monitoring.outputs.workspaceId
    namespaceId: serviceBus.outputs.id
    entityName: serviceBus.outputs.entityName
    entityMegabytes: serviceBus.outputs.entityMegabytes
    premium: serviceBusSku == 'Premium'
    othersSubscribe: othersSubscribe
    storageId: storage.outputs.id
    actionGroupName: '${abbreviations.actionGroup}${token}'
    email: alertEmail
    existingActionGroupIds: actionGroupIds
    producerName: producerName
    projectorNames: join(projectorNames, '\', \'')
    oplogHours: oplogHours
    lagSeconds: lagAlertSeconds
  }
}

module budget 'modules/budget.bicep' = if (monthlyBudget > 0 && !empty(alertEmail)) {
  params: { name: 'sluice-${token}', amount: max(monthlyBudget, 1), email: alertEmail }
}

module workbook 'modules/workbook.bicep' = {
  params: {
    location: location
    tags: tags
    workspaceId: monitoring.outputs.workspaceId
    producerName: producerName
    projectorNames: join(projectorNames, '\', \'')
  }
}

output containerEnvironmentName string = environmentName
output registryName string = registry.outputs.name
output registryEndpoint string = registry.outputs.loginServer
output vaultName string = vault.outputs.name
output actionGroupIds string = alerts.outputs.actionGroupIds
output workspaceId string = monitoring.outputs.workspaceId
output workspaceName string = monitoring.outputs.workspaceName
output blobUrl string = storage.outputs.blobUrl
output copiesContainer string = storage.outputs.copiesContainer
output checkpointContainer string = storage.outputs.checkpointContainer
output claimCheckContainer string = storage.outputs.claimCheckContainer
output serviceBusEndpoint string = serviceBus.outputs.endpoint
output serviceBusName string = serviceBus.outputs.name
output topicName string = serviceBus.outputs.topicName
output subscriptionName string = serviceBus.outputs.subscriptionName
output queueName string = serviceBus.outputs.queueName
output producerName string = producerName
output producerJobName string = producerJobName
output producerIdentityId string = identities.outputs.producerId
output producerClientId string = identities.outputs.producerClientId
output projectorName string = projectorName
output projectorJobName string = projectorJobName
output projectorIdentityId string = identities.outputs.projectorId
output projectorClientId string = identities.outputs.projectorClientId
output scalerIdentityId string = identities.outputs.scalerId
output sourceIdentityId string = identities.outputs.sourceId
output sourceSecretUri string = vaultAccess.outputs.sourceSecretUri
output readModelSecretUri string = vaultAccess.outputs.readModelSecretUri
output watchName string = watchName
output copyName string = copyName
output outboundAddress string = network.?outputs.outboundAddress ?? ''
