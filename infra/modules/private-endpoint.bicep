// A resource's address inside the network, and the private DNS zone in which its public name leads there: clients keep the name
// that they have.
param location string
param tags object
param name string
param resourceId string
@description('Which of the resource\'s services: namespace, blob, vault, registry, MongoCluster')
param group string
@description('privatelink.…')
param zone string
param networkId string
param subnetId string

resource endpoint 'Microsoft.Network/privateEndpoints@2024-05-01' = {
  name: name
  location: location
  tags: tags
  properties: {
    subnet: { id: subnetId }
    privateLinkServiceConnections: [{ name: name, properties: { privateLinkServiceId: resourceId, groupIds: [group] } }]
  }
}

resource dns 'Microsoft.Network/privateDnsZones@2024-06-01' = {
  name: zone
  location: 'global'
  tags: tags
}

resource link 'Microsoft.Network/privateDnsZones/virtualNetworkLinks@2024-06-01' = {
  parent: dns
  name: 'network'
  location: 'global'
  tags: tags
  properties: { virtualNetwork: { id: networkId }, registrationEnabled: false }
}

resource names 'Microsoft.Network/privateEndpoints/privateDnsZoneGroups@2024-05-01' = {
  parent: endpoint
  name: 'default'
  properties: { privateDnsZoneConfigs: [{ name: group, properties: { privateDnsZoneId: dns.id } }] }
}

output id string = endpoint.id
