package deploy

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/tests/internal/bicep"
)

// evaluated returns a field of a resource, below its properties, as it is with the given
// parameters.
func evaluated(t *testing.T, file, resource, field string, given map[string]any) any {
	t.Helper()
	return evalValue(t, file, find(t, file, "resource", resource).Value.At("properties", field), given)
}

// A partitioned namespace accepts no entity that is not partitioned, and vice versa: in Premium
// they must agree. In Standard the entity alone decides. Messaging units are a multiple of the
// partitions.
func TestEntitiesArePartitionedAsTheirNamespaceIs(t *testing.T) {
	const f = "modules/servicebus.bicep"
	for _, sku := range []string{"Standard", "Premium"} {
		for _, units := range []int{1, 2, 4, 8, 16} {
			for _, partitioned := range []bool{false, true} {
				given := map[string]any{"sku": sku, "messagingUnits": units, "partitioned": partitioned, "entityKind": "topic"}
				what := fmt.Sprintf("%s, %d units, partitioned %v", sku, units, partitioned)
				partitions := evaluated(t, f, "namespace", "premiumMessagingPartitions", given)
				want := partitioned
				if sku == "Premium" {
					require.Contains(t, []any{1, 2, 4}, partitions, what)
					require.Zero(t, units%partitions.(int), what)
					want = partitions.(int) > 1
				} else {
					require.Nil(t, partitions, what)
				}
				require.Equal(t, want, evaluated(t, f, "topic", "enablePartitioning", given), what)
				require.Equal(t, want, evaluated(t, f, "queue", "enablePartitioning", given), what)
				require.Equal(t, !want, evaluated(t, f, "topic", "supportOrdering", given), what)
			}
		}
	}
}

// The data is replicated to a second region if one is set, in Premium only: the deployment's region
// is the primary, and the other one the secondary.
func TestTheNamespaceIsReplicatedIfARegionIsSet(t *testing.T) {
	const f = "modules/servicebus.bicep"
	for _, c := range []struct {
		sku, region string
		replicated  bool
	}{{"Premium", "", false}, {"Premium", "swedencentral", true}, {"Standard", "swedencentral", false}, {"Standard", "", false}} {
		got := eval(t, f, "replicated", map[string]any{"sku": c.sku, "replicaRegion": c.region})
		require.Equal(t, c.replicated, got, "%v", c)
	}
	choice := find(t, f, "resource", "namespace").Value.At("properties", "geoDataReplication")
	require.Equal(t, "replicated ? replication : null", choice.Text)
	replication := find(t, f, "var", "replication").Value
	require.Equal(t, "replicaLagSeconds", replication.At("maxReplicationLagDurationInSeconds").Text)
	var roles []string
	replication.Walk(func(path []string, v bicep.Value) {
		if len(path) > 0 && (path[len(path)-1] == "locationName" || path[len(path)-1] == "roleType") {
			roles = append(roles, v.Text)
		}
	})
	require.Equal(t, []string{"location", "Primary", "replicaRegion", "Secondary"}, roles)
}

// The projector's MAX_DELIVERIES is that of the entity, because it must park an event before the
// broker dead-letters it.
func TestMaxDeliveriesMatchesTheEntity(t *testing.T) {
	most := find(t, "modules/servicebus.bicep", "param", "maxDeliveryCount")
	require.Equal(t, most.Value.Text, containerEnv(t, "projector")["MAX_DELIVERIES"].Text)
	require.Contains(t, read(t, "tests/e2e/live/world_test.go"), "\tmaxDeliveries = "+most.Value.Text+"\n", "the tests use the deployed value")
}
