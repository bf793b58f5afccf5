// The virtual network of NETWORK=vnet and private: one subnet for the Container Apps environment, one for the private
// endpoints, which vnet leaves empty. Nothing comes in from outside. What goes out (MongoDB elsewhere, Azure's own addresses)
// has one address, which others can allow.
param location string
param tags { *: string }
param name string
@description('Of the network, /24 or larger; must not overlap with networks that it is peered to')
param addressPrefix string
param zones string[]

// The least that Container Apps takes is /27. A replica needs an address, and a rollout twice as many.
var appsPrefix = cidrSubnet(addressPrefix, 26, 0)
var endpointsPrefix = cidrSubnet(addressPrefix, 26, 1)

resource outbound 'Microsoft.Network/publicIPAddresses@2026-03-01' = {
  name: '${name}-outbound'
  location: location
  tags: tags
  sku: { name: 'Standard' }
  zones: zones
  properties: { publicIPAllocationMethod: 'Static' }
}

// In one zone: StandardV2, which is in all of them, cannot be attached to a subnet that is delegated to Container Apps.
resource nat 'Microsoft.Network/natGateways@2026-03-01' = {
  name: '${name}-nat'
  location: location
  tags: tags
  sku: { name: 'Standard' }
  properties: { publicIpAddresses: [{ id: outbound.id }] }
}

// No rules of its own: the ones there are let the network talk to itself and outwards, and nobody in.
resource security 'Microsoft.Network/networkSecurityGroups@2026-03-01' = {
  name: '${name}-rules'
  location: location
  tags: tags
  properties: {}
}

resource network 'Microsoft.Network/virtualNetworks@2026-03-01' = {
  name: name
  location: location
  tags: tags
  properties: {
    addressSpace: { addressPrefixes: [addressPrefix] }
    subnets: [
      {
        name: 'apps'
        properties: {
          addressPrefix: appsPrefix
          defaultOutboundAccess: false
          delegations: [{ name: 'apps', properties: { serviceName: 'Microsoft.App/environments' } }]
          natGateway: { id: nat.id }
          networkSecurityGroup: { id: security.id }
        }
      }
      {
        name: 'endpoints'
        properties: {
          addressPrefix: endpointsPrefix
          defaultOutboundAccess: false
          networkSecurityGroup: { id: security.id }
          privateEndpointNetworkPolicies: 'Enabled' // the rules hold for the endpoints, too
        }
      }
    ]
  }

  resource apps 'subnets' existing = { name: 'apps' }
  resource endpoints 'subnets' existing = { name: 'endpoints' }
}

output networkId string = network.id
output appsSubnetId string = network::apps.id
output endpointsSubnetId string = network::endpoints.id
output outboundAddress string = outbound.properties.ipAddress
