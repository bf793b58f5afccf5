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
	main := template(t, "resources.bicep")
	for mode, access := range map[string]string{"public": "Enabled", "vnet": "Enabled", "private": "Disabled"} {
		given := map[string]any{"networkMode": mode, "mongoMode": "documentdb", "subnetId": ""}
		private, err := main.Eval("privateNetwork", given)
		require.NoError(t, err)
		for _, r := range reachable {
			in := map[string]any{"privateNetwork": private}
			require.Equal(t, access, evaluated(t, template(t, r.path), r.resource, "publicNetworkAccess", in), "%s: %s", mode, r.path)
			endpoint, found := main.Find("module", r.endpoint)
			require.True(t, found, r.endpoint)
			made, err := main.Eval(endpoint.Condition, given)
			require.NoError(t, err)
			require.Equal(t, private, made, "%s: %s", mode, r.endpoint)
			params, _ := endpoint.Value.Field("params")
			group, _ := params.Field("group")
			zone, _ := params.Field("zone")
			require.Equal(t, r.group, group.Text, r.endpoint)
			require.Equal(t, r.zone, strings.Trim(zone.Text, "'"), r.endpoint)
		}
		network, _ := main.Find("module", "network")
		made, err := main.Eval(network.Condition, given)
		require.NoError(t, err)
		require.Equal(t, mode != "public", made)
		given["subnetId"] = "/a/subnet/of/theirs"
		made, err = main.Eval(network.Condition, given)
		require.NoError(t, err)
		require.Equal(t, false, made, "%s: the network is there", mode)
		open, _ := template(t, "modules/documentdb.bicep").Find("resource", "fromAzure")
		opened, err := template(t, "modules/documentdb.bicep").Eval(open.Condition, map[string]any{"privateNetwork": private})
		require.NoError(t, err)
		require.Equal(t, mode != "private", opened, "the cluster's door for Azure's addresses")
	}
	host, found := template(t, "modules/documentdb.bicep").Find("var", "host")
	require.True(t, found)
	require.Equal(t, "${cluster.name}."+strings.TrimPrefix(reachable[4].zone, "privatelink."), strings.Trim(host.Value.Text, "'"), "the zone has the cluster's name")
	// Every resource with a public endpoint is in the table.
	for path, f := range templates(t) {
		for _, r := range f.All("resource") {
			if properties, _ := r.Value.Field("properties"); !r.Existing {
				if _, has := properties.Field("publicNetworkAccess"); has {
					kind, _, _ := strings.Cut(strings.Trim(r.Type, "'"), "@")
					known := false
					for _, k := range reachable {
						known = known || k.path == path && k.resource == r.Name && k.kind == kind
					}
					require.True(t, known, "%s: %s", path, r.Name)
				}
			}
		}
	}
}

// The environment is in the network, without an external address and across the zones.
func TestTheEnvironmentIsInTheNetwork(t *testing.T) {
	const path = "modules/environment.bicep"
	environment, found := template(t, path).Find("resource", "environment")
	require.True(t, found)
	properties, _ := environment.Value.Field("properties")
	network, _ := properties.Field("vnetConfiguration")
	require.Equal(t, "empty(subnetId)?null:{infrastructureSubnetId:subnetIdinternal:true}", compact(network.Text))
	for _, c := range []struct {
		subnet string
		zones  bool
		want   bool
	}{{"", true, false}, {"subnet", true, true}, {"subnet", false, false}} {
		require.Equal(t, c.want, evaluated(t, template(t, path), "environment", "zoneRedundant",
			map[string]any{"subnetId": c.subnet, "zoneRedundant": c.zones}))
	}
	require.Contains(t, read(t, "infra/modules/network.bicep"), "serviceName: 'Microsoft.App/environments'", "the apps' subnet is delegated")
}

// The outgoing address is in one zone, and the README does not promise more.
func TestTheReadmePromisesNoMoreZonesThanThereAre(t *testing.T) {
	nat, found := template(t, "modules/network.bicep").Find("resource", "nat")
	require.True(t, found)
	require.Contains(t, compact(nat.Value.Text), "sku:{name:Standard}", "StandardV2 cannot be attached to a subnet that is delegated to Container Apps; once it can, the sentence goes")
	require.Contains(t, read(t, "infra/README.md"), "which lives in one zone")
}

// Permissions do not depend on the network.
func TestRolesAreTheSameInBothNetworks(t *testing.T) {
	checked := 0
	for path, f := range templates(t) {
		for _, r := range f.All("resource") {
			if strings.Contains(r.Type, "roleAssignments@") {
				checked++
				require.NotContains(t, strings.ToLower(r.Condition), "network", "%s: %s", path, r.Name)
			}
		}
	}
	require.Greater(t, checked, 10)
}
