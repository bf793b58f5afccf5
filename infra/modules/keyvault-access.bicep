// Who may read which secret: each service its own, and nothing else in the vault.
param vaultName string
param producerIdentity string
param projectorIdentity string
param sourceIdentity string
@description('A group of people; empty: none')
param operatorsGroupId string

var secretsUser = subscriptionResourceId(
  'Microsoft.Authorization/roleDefinitions',
  '4633458b-17de-408a-b874-0445c86b69e6'
)

resource producer 'Microsoft.ManagedIdentity/userAssignedIdentities@2024-11-30' existing = {
  name: producerIdentity
}

resource projector 'Microsoft.ManagedIdentity/userAssignedIdentities@2024-11-30' existing = {
  name: projectorIdentity
}

resource sourceReader 'Microsoft.ManagedIdentity/userAssignedIdentities@2024-11-30' existing = {
  name: sourceIdentity
}

resource vault 'Microsoft.KeyVault/vaults@2025-05-01' existing = {
  name: vaultName

  resource source 'secrets' existing = { name: 'source-mongodb-uri' }
  resource readModel 'secrets' existing = { name: 'read-model-mongodb-uri' }
}

resource producerReads 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(vault::source.id, producer.id, secretsUser)
  scope: vault::source
  properties: {
    principalId: producer.properties.principalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: secretsUser
  }
}

resource projectorReads 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(vault::readModel.id, projector.id, secretsUser)
  scope: vault::readModel
  properties: {
    principalId: projector.properties.principalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: secretsUser
  }
}

// For the operators' jobs of the projector, which read the source. The projector itself does not get it.
resource jobsRead 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(vault::source.id, sourceReader.id, secretsUser)
  scope: vault::source
  properties: {
    principalId: sourceReader.properties.principalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: secretsUser
  }
}

// Operators read the URI of the read models, to look at them. The source's is not given here, but they may start the producer's job with any
// command, and so can read it (README, "Who can do what").
resource operatorsRead 'Microsoft.Authorization/roleAssignments@2022-04-01' = if (!empty(operatorsGroupId)) {
  name: guid(vault::readModel.id, operatorsGroupId, secretsUser)
  scope: vault::readModel
  properties: {
    principalId: operatorsGroupId
    principalType: 'Group'
    roleDefinitionId: secretsUser
  }
}

// Addresses without a version: the platform takes a new version of the secret within half an hour.
#disable-next-line outputs-should-not-contain-secrets // where a secret is, not what it is
output sourceSecretUri string = vault::source.properties.secretUri
#disable-next-line outputs-should-not-contain-secrets // where a secret is, not what it is
output readModelSecretUri string = vault::readModel.properties.secretUri
