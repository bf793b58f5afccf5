package publish

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/virtualtime"
)

// gauge counts the batches that are outstanding at a broker.
type gauge struct {
	mu                sync.Mutex
	outstanding, most int
}

func (g *gauge) add(batches int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.outstanding += batches
	g.most = max(g.most, g.outstanding)
}

// sent publishes 3,000 events round robin over the sessions, and returns the most batches that were
// outstanding at once, and what arrived.
func sent(t *testing.T, config Config, sessions int) (most int, arrived [][]string) {
	t.Helper()
	var g gauge
	bus := &memoryBroker{capacity: 1000, before: func(context.Context, []string) outcome {
		g.add(1)
		time.Sleep(10 * time.Millisecond) // the network's latency, in virtual time
		g.add(-1)
		return stored
	}}
	p := start(config, bus, openFence{})
	done := run(t.Context(), p)
	publishInTurn(t, p, sessions, 3000)
	finish(t, p, done, 3000)
	return g.most, bus.arrived
}

// With many sessions the number of lanes grows to its limit; with fewer sessions than lanes it does
// not.
func TestLanesGrowWithTheBacklog(t *testing.T) {
	for _, test := range []struct{ sessions, lanes, maxLanes, most int }{
		{sessions: 1000, lanes: 4, maxLanes: 64, most: 64},
		{sessions: 1000, lanes: 4, maxLanes: 4, most: 4},
		{sessions: 3, lanes: 4, maxLanes: 64, most: 3},
		{sessions: 1, lanes: 1, maxLanes: 1, most: 1},
	} {
		t.Run(fmt.Sprintf("%+v", test), func(t *testing.T) {
			virtualtime.Test(t, func(t *testing.T) {
				config := testConfig()
				config.Lanes, config.MaxLanes = test.lanes, test.maxLanes
				most, _ := sent(t, config, test.sessions)
				require.Equal(t, test.most, most)
			})
		})
	}
}

// In mixed scope, further lanes are used for full batches only.
func TestMixedBatchesAreFilledBeforeMoreLanesAreUsed(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		config := testConfig()
		config.Scope = ScopeMixed
		_, arrived := sent(t, config, 1000)
		require.LessOrEqual(t, len(arrived), 3000/config.BatchMessages+2*config.MaxLanes)
	})
}
