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

// gauge records what is outstanding at a broker.
type gauge struct {
	mu                sync.Mutex
	outstanding, most int
	sessions          map[string]int
	twice             []string // sessions that were outstanding more than once at a time
}

func (g *gauge) begin(messages []string) (sessions map[string]bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.outstanding++
	g.most = max(g.most, g.outstanding)
	sessions = sessionsOf(messages)
	if g.sessions == nil {
		g.sessions = map[string]int{}
	}
	for session := range sessions {
		if g.sessions[session]++; g.sessions[session] > 1 {
			g.twice = append(g.twice, session)
		}
	}
	return sessions
}

func (g *gauge) end(sessions map[string]bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.outstanding--
	for session := range sessions {
		g.sessions[session]--
	}
}

// sent publishes events round robin over the sessions, and returns what was outstanding and what
// arrived.
func sent(t *testing.T, config Config, sessions, events int, latency time.Duration) (*gauge, *memoryBroker) {
	t.Helper()
	g := &gauge{}
	bus := &memoryBroker{capacity: 1000, before: func(_ context.Context, messages []string) outcome {
		begun := g.begin(messages)
		time.Sleep(latency) // the network's latency, in virtual time
		g.end(begun)
		return stored
	}}
	p := start(config, bus, openFence{})
	done := run(t.Context(), p)
	publishInTurn(t, p, sessions, events)
	finish(t, p, done, events)
	return g, bus
}

// G2: two batches of one session are never outstanding at once, no matter how many lanes there are.
func TestG2ASessionIsInOneLaneAtATime(t *testing.T) {
	for _, scope := range []Scope{ScopeSession, ScopeMixed, ScopeAuto} {
		virtualtime.Test(t, func(t *testing.T) {
			config := testConfig()
			config.Scope, config.BatchMessages = scope, 3
			g, _ := sent(t, config, 5, 500, time.Millisecond)
			require.Empty(t, g.twice)
			require.Greater(t, g.most, 1)
		})
	}
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
				g, _ := sent(t, config, test.sessions, 3000, 10*time.Millisecond)
				require.Equal(t, test.most, g.most)
			})
		})
	}
}

// In mixed scope, further lanes are used for full batches only.
func TestMixedBatchesAreFilledBeforeMoreLanesAreUsed(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		config := testConfig()
		config.Scope = ScopeMixed
		_, bus := sent(t, config, 1000, 3000, 10*time.Millisecond)
		require.LessOrEqual(t, len(bus.arrived), 3000/config.BatchMessages+2*config.MaxLanes)
	})
}
