// A MongoDB to try Sluice with, and plainly a toy: a replica set of one member in a container, without a volume and without
// users. Its data is gone when the container is replaced. Only apps of the environment reach it.
param location string
param tags { *: string }
param name string
param environmentName string
@description('Docker\'s own image, from a registry that does not limit anonymous pulls as Docker Hub does')
param image string = 'public.ecr.aws/docker/library/mongo:8.0.12'

resource environment 'Microsoft.App/managedEnvironments@2026-07-01' existing = {
  name: environmentName
}

// Change streams and transactions need a replica set. Its one member is known as localhost, since clients connect directly.
var start = loadTextContent('demo-mongodb.sh')

resource mongodb 'Microsoft.App/containerApps@2025-07-01' = {
  name: name
  location: location
  tags: tags
  properties: {
    environmentId: environment.id
    workloadProfileName: 'Consumption'
    configuration: {
      activeRevisionsMode: 'Single'
      ingress: { external: false, transport: 'tcp', targetPort: 27017, exposedPort: 27017 }
    }
    template: {
      containers: [
        {
          name: 'mongodb'
          image: image
          command: ['bash', '-c', start]
          resources: { cpu: json('0.5'), memory: '1Gi' } // json: a fraction is no int
        }
      ]
      scale: { minReplicas: 1, maxReplicas: 1 }
    }
  }
}

output id string = mongodb.id
