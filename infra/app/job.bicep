// A Container Apps job with a service's image, identity and settings: one of its operator's commands, by the clock or when
// somebody starts it (scripts/operate.sh). So nobody needs rights of their own on the data, nor a machine inside the network.
param name string
param location string
param tags { *: string }
param environmentId string
param registry string
param image string
param identityId string
param mongoSecretUri string
@description('Where the source\'s connection string is, and the identity that reads it there; empty: the command gets none')
param sourceSecretUri string = ''
param sourceIdentityId string = ''
@description('The command, word by word')
param args string[]
@description('The service\'s own settings')
param settings setting[]
@description('Of the program that is the projection: a second container, with which the job ends only when it is stopped (scripts/answer.sh). Empty: none')
param projectionImage string = ''
param cpu string
param memory string
@description('Minute, hour, day, month, weekday in UTC; empty: only when somebody starts it')
param schedule string = ''
@description('A group of people who may start it, stop it and see its runs; empty: none')
param operatorsGroupId string = ''
@minValue(30)
@description('Seconds after which it is killed')
param timeoutSeconds int

@description('An environment variable: its value, or the secret that has it')
type setting = {
  name: string
  value: string?
  secretRef: string?
}

var jobsOperator = subscriptionResourceId(
  'Microsoft.Authorization/roleDefinitions',
  'b9a307c4-5aa3-4b52-ba60-2b17c136cd7b'
)

var readsSource = !empty(sourceSecretUri)
var reader = readsSource ? { '${sourceIdentityId}': {} } : {}

resource job 'Microsoft.App/jobs@2025-07-01' = {
  name: name
  location: location
  tags: tags
  identity: { type: 'UserAssigned', userAssignedIdentities: union({ '${identityId}': {} }, reader) }
  properties: {
    environmentId: environmentId
    workloadProfileName: 'Consumption'
    configuration: {
      triggerType: empty(schedule) ? 'Manual' : 'Schedule'
      manualTriggerConfig: empty(schedule) ? { parallelism: 1, replicaCompletionCount: 1 } : null
      scheduleTriggerConfig: empty(schedule)
        ? null
        : { cronExpression: schedule, parallelism: 1, replicaCompletionCount: 1 }
      replicaTimeout: timeoutSeconds
      replicaRetryLimit: 0 // a command that failed is looked at, not repeated
      registries: [{ server: registry, identity: identityId }]
      secrets: concat(
        [{ name: 'mongodb-uri', keyVaultUrl: mongoSecretUri, identity: identityId }],
        readsSource ? [{ name: 'source-mongodb-uri', keyVaultUrl: sourceSecretUri, identity: sourceIdentityId }] : []
      )
      identitySettings: readsSource ? [{ identity: sourceIdentityId, lifecycle: 'None' }] : []
    }
    template: {
      containers: concat(
        [
          {
            name: 'command'
            image: image
            args: args
            env: concat(settings, readsSource ? [{ name: 'SOURCE_MONGODB_URI', secretRef: 'source-mongodb-uri' }] : [])
            resources: { cpu: json(cpu), memory: memory } // json: a fraction is no int
          }
        ],
        empty(projectionImage)
          ? []
          : [
              {
                name: 'projection'
                image: projectionImage
                env: [{ name: 'PORT', value: '8088' }]
                resources: { cpu: json(cpu), memory: memory }
              }
            ]
      )
    }
  }
}

resource operatorsJob 'Microsoft.Authorization/roleAssignments@2022-04-01' = if (!empty(operatorsGroupId)) {
  name: guid(job.id, operatorsGroupId, jobsOperator)
  scope: job
  properties: { principalId: operatorsGroupId, principalType: 'Group', roleDefinitionId: jobsOperator }
}
