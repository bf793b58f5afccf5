// Four identities, because each program and each way to sign in needs other rights: whoever takes over one of them has that
// one's rights only. They are user-assigned, so that their roles exist before the apps do.
param location string
param tags { *: string }
param producerName string
param projectorName string
param scalerName string
param sourceName string

resource producer 'Microsoft.ManagedIdentity/userAssignedIdentities@2024-11-30' = {
  name: producerName
  location: location
  tags: tags
}

resource projector 'Microsoft.ManagedIdentity/userAssignedIdentities@2024-11-30' = {
  name: projectorName
  location: location
  tags: tags
}

// Signs in for the scaler of the projector, which reads the number of messages. No container gets its token.
resource scaler 'Microsoft.ManagedIdentity/userAssignedIdentities@2024-11-30' = {
  name: scalerName
  location: location
  tags: tags
}

// Reads the source's URI for the operators' jobs of the projector (build, repair, verify). No container gets its token, so a
// projector that is taken over cannot read the source.
resource source 'Microsoft.ManagedIdentity/userAssignedIdentities@2024-11-30' = {
  name: sourceName
  location: location
  tags: tags
}

output producerId string = producer.id
output producerClientId string = producer.properties.clientId
output projectorId string = projector.id
output projectorClientId string = projector.properties.clientId
output scalerId string = scaler.id
output sourceId string = source.id
