package workload_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/tests/internal/workload"
)

func generate(seed uint64, n int) []workload.Event {
	var events []workload.Event
	for e := range workload.Orders(seed) {
		if events = append(events, e); len(events) == n {
			break
		}
	}
	return events
}

func TestOrdersRepeatWithTheirSeed(t *testing.T) {
	t.Parallel()
	require.Equal(t, generate(1, 500), generate(1, 500))
	require.NotEqual(t, generate(1, 500), generate(2, 500))
}

func TestOrdersFollowTheirLifeCycle(t *testing.T) {
	t.Parallel()
	versions, types, sizes := map[string]int64{}, map[string]int{}, map[string]int{}
	last := map[string]string{}
	equalTimes := 0
	before := ""
	for _, e := range generate(3, 5000) {
		require.Equal(t, versions[e.AggregateID]+1, e.Version, "%s", e.AggregateID)
		versions[e.AggregateID]++
		require.Equal(t, e.Version == 1, e.Type == "OrderPlaced")
		require.NotContains(t, []string{"OrderCancelled", "OrderRefunded", "OrderDelivered"}, last[e.AggregateID], "an order that ended goes on")
		last[e.AggregateID] = e.Type
		types[e.Type]++
		sizes[e.AggregateID]++
		if e.OccurredAt == before {
			equalTimes++
		}
		before = e.OccurredAt
	}
	require.Greater(t, len(versions), 500)
	for _, kind := range []string{
		"OrderPlaced", "ItemAdded", "ItemRemoved", "OrderPaid", "OrderPacked", "OrderShipped",
		"OrderDelivered", "OrderCancelled", "OrderRefunded",
	} {
		require.Positive(t, types[kind], kind)
	}
	require.Greater(t, sizes["order-000001"], 150, "a hot aggregate")
	require.Greater(t, equalTimes, 1000, "times repeat, as they do in real data")
}
