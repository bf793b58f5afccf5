package deploy

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/tests/internal/bicep"
)

// evaluated is a field of a resource, below its properties, as the given parameters make it.
func evaluated(t *testing.T, f *bicep.File, resource, field string, given map[string]any) any {
	t.Helper()
	r, found := f.Find("resource", resource)
	require.True(t, found, "%s: %s", f.Path, resource)
	properties, _ := r.Value.Field("properties")
	value, found := properties.Field(field)
	require.True(t, found, "%s: %s has no %s", f.Path, resource, field)
	v, err := f.EvalValue(value, given)
	require.NoError(t, err)
	return v
}

// A partitioned namespace takes no entity that is not partitioned, and one that is not takes none that is: in Premium they
// must agree. In Standard the entity alone decides. Messaging units are a multiple of the partitions.
func TestEntitiesArePartitionedAsTheirNamespaceIs(t *testing.T) {
	f := template(t, "modules/servicebus.bicep")
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
