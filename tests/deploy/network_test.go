package deploy

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// reachable lists the resources that the apps use: the file of each, and the service, the zone and
// the module of its private endpoint.
var reachable = []struct{ path, resource, kind, group, zone, endpoint string }{
	{"modules/servicebus.bicep", "namespace", "Microsoft.ServiceBus/namespaces", "namespace", "privatelink.servicebus.windows.net", "serviceBusEndpoint"},
	{"modules/storage.bicep", "account", "Microsoft.Storage/storageAccounts", "blob", "privatelink.blob.${az.environment().suffixes.storage}", "blobsEndpoint"},
	{"modules/keyvault.bicep", "vault", "Microsoft.KeyVault/vaults", "vault", "privatelink.vaultcore.azure.net", "vaultEndpoint"},
	{"modules/registry.bicep", "registry", "Microsoft.ContainerRegistry/registries", "registry", "privatelink${az.environment().suffixes.acrLoginServer}", "registryEndpoint"},
	{"modules/documentdb.bicep", "cluster", "Microsoft.DocumentDB/mongoClusters", "MongoCluster", "privatelink.mongocluster.cosmos.azure.com", "documentDbEndpoint"},
}

// With NETWORK=private no resource that the apps use is reachable from the internet, and each has
// an endpoint in the network; with public it is the other way round.
func TestPrivateNetworksClosePublicEndpoints(t *testing.T) {
	const main, cluster = "resources.bicep", "modules/documentdb.bicep"
	for mode, access := range map[string]string{"public": "Enabled", "vnet": "Enabled", "private": "Disabled"} {
		given := map[string]any{"networkMode": mode, "mongoMode": "documentdb", "subnetId": ""}
		private := eval(t, main, "privateNetwork", given)
		in := map[string]any{"privateNetwork": private}
		for _, r := range reachable {
			require.Equal(t, access, evaluated(t, r.path, r.resource, "publicNetworkAccess", in), "%s: %s", mode, r.path)
			endpoint := find(t, main, "module", r.endpoint)
			require.Equal(t, private, eval(t, main, endpoint.Condition, given), "%s: %s", mode, r.endpoint)
			require.Equal(t, r.group, endpoint.Value.At("params", "group").Text, r.endpoint)
			require.Equal(t, r.zone, strings.Trim(endpoint.Value.At("params", "zone").Text, "'"), r.endpoint)
		}
		network := find(t, main, "module", "network").Condition
		require.Equal(t, mode != "public", eval(t, main, network, given))
		given["subnetId"] = "/a/subnet/of/theirs"
		require.Equal(t, false, eval(t, main, network, given), "%s: the network is there", mode)
		opened := eval(t, cluster, find(t, cluster, "resource", "fromAzure").Condition, in)
		require.Equal(t, mode != "private", opened, "the cluster's door for Azure's addresses")
	}
	host := find(t, cluster, "var", "host")
	require.Equal(t, "${cluster.name}."+strings.TrimPrefix(reachable[4].zone, "privatelink."), strings.Trim(host.Value.Text, "'"), "the zone has the cluster's name")
	// Every resource with a public endpoint is in the table.
	for path, r := range declared(t, "resource") {
		if _, has := r.Value.At("properties").Field("publicNetworkAccess"); has && !r.Existing {
			known := false
			for _, k := range reachable {
				known = known || k.path == path && k.resource == r.Name && k.kind == r.Kind()
			}
			require.True(t, known, "%s: %s", path, r.Name)
		}
	}
}

// The environment is in the network, without an external address and across the zones.
func TestTheEnvironmentIsInTheNetwork(t *testing.T) {
	const path = "modules/environment.bicep"
	network := find(t, path, "resource", "environment").Value.At("properties", "vnetConfiguration")
	require.Equal(t, "empty(subnetId)?null:{infrastructureSubnetId:subnetIdinternal:true}", compact(network.Text))
	for _, c := range []struct {
		subnet string
		zones  bool
		want   bool
	}{{"", true, false}, {"subnet", true, true}, {"subnet", false, false}} {
		require.Equal(t, c.want, evaluated(t, path, "environment", "zoneRedundant",
			map[string]any{"subnetId": c.subnet, "zoneRedundant": c.zones}))
	}
	require.Contains(t, read(t, "infra/modules/network.bicep"), "serviceName: 'Microsoft.App/environments'", "the apps' subnet is delegated")
}

// The outgoing address is in one zone, and the README does not promise more.
func TestTheReadmePromisesNoMoreZonesThanThereAre(t *testing.T) {
	nat := find(t, "modules/network.bicep", "resource", "nat")
	require.Contains(t, compact(nat.Value.Text), "sku:{name:Standard}", "StandardV2 cannot be attached to a subnet that is delegated to Container Apps; once it can, the sentence goes")
	require.Contains(t, read(t, "infra/README.md"), "which lives in one zone")
}
