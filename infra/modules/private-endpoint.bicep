// A resource's address inside the network, and the private DNS zone in which its public name leads there: clients keep the name
// that they have.
param location string
param tags { *: string }
param name string
param resourceId string
@description('Which of the resource\'s services: namespace, blob, vault, registry, MongoCluster')
param group string
@description('privatelink.…')
param zone string
@description('Id of the resource group with the zones that there are already; empty: the zone is made here')
param zonesGroupId string
param subnetId string

var makeZone = empty(zonesGroupId)

resource endpoint 'Microsoft.Network/privateEndpoints@2026-03-01' = {
  name: name
  location: location
  tags: tags
  properties: {
    subnet: { id: subnetId }
    privateLinkServiceConnections: [{ name: name, properties: { privateLinkServiceId: resourceId, groupIds: [group] } }]
  }
}

resource dns 'Microsoft.Network/privateDnsZones@2024-06-01' = if (makeZone) {
  name: zone
  location: 'global'
  tags: tags
}

resource link 'Microsoft.Network/privateDnsZones/virtualNetworkLinks@2024-06-01' = if (makeZone) {
  parent: dns
  name: 'network'
  location: 'global'
  tags: tags
  properties: { virtualNetwork: { id: split(subnetId, '/subnets/')[0] }, registrationEnabled: false }
}

resource names 'Microsoft.Network/privateEndpoints/privateDnsZoneGroups@2026-03-01' = {
  parent: endpoint
  name: 'default'
  properties: {
    privateDnsZoneConfigs: [
      {
        name: group
        properties: {
          privateDnsZoneId: makeZone ? dns.id : '${zonesGroupId}/providers/Microsoft.Network/privateDnsZones/${zone}'
        }
      }
    ]
  }
}

output id string = endpoint.id
