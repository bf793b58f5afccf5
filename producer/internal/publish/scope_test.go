package publish

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/virtualtime"
)

func sessionsOf(messages []string) map[string]bool {
	sessions := map[string]bool{}
	for _, m := range messages {
		session, _, _ := strings.Cut(m, "/")
		sessions[session] = true
	}
	return sessions
}

// publishAll publishes three events of each session with ScopeAuto, and returns the broker.
func publishAll(t *testing.T, sessions int, before func(messages []string) outcome) *memoryBroker {
	t.Helper()
	bus := &memoryBroker{capacity: 1000, before: func(_ context.Context, messages []string) outcome {
		time.Sleep(10 * time.Millisecond) // the network's latency, in virtual time
		return before(messages)
	}}
	config := testConfig()
	config.Scope = ScopeAuto
	p := start(config, bus, openFence{})
	done := run(t.Context(), p)
	events := 3 * sessions
	publishInTurn(t, p, sessions, events)
	finish(t, p, done, events)
	return bus
}

// G1 and G2: a partitioned entity refuses batches of several sessions. What is sent to learn that
// arrives once and in order, and is one small batch.
func TestG1G2BatchesOfAPartitionedEntityHoldOneSession(t *testing.T) {
	for name, answer := range map[string]outcome{"rejected": never, "detached": objecting} {
		t.Run(name, func(t *testing.T) {
			virtualtime.Test(t, func(t *testing.T) {
				var refusals atomic.Int64
				bus := publishAll(t, 500, func(messages []string) outcome {
					if len(sessionsOf(messages)) > 1 {
						refusals.Add(1)
						return answer
					}
					return stored
				})
				next := map[string]int{}
				for _, batch := range bus.arrived {
					for _, m := range batch {
						session, _, _ := strings.Cut(m, "/")
						next[session]++
						require.Equal(t, fmt.Sprintf("%s/%d", session, next[session]), m)
					}
				}
				const attempts = 20 // before a detached batch, or a part of it, counts as suspect
				require.Positive(t, refusals.Load())
				require.LessOrEqual(t, refusals.Load(), int64(attempts+learningSessions))
			})
		})
	}
}

// G1 and G6: a message that is refused, and accepted later, is not mistaken for a refusal of the
// batch in which it was.
func TestG1G6AMessageThatIsRefusedForAWhileCondemnsNoBatch(t *testing.T) {
	for _, scope := range []Scope{ScopeSession, ScopeMixed, ScopeAuto} {
		virtualtime.Test(t, func(t *testing.T) {
			var alone atomic.Int64 // attempts with the message alone
			bus := &memoryBroker{capacity: 1000, before: func(_ context.Context, messages []string) outcome {
				if len(messages) == 1 && messages[0] == "a1/1" && alone.Add(1) > 1 || !slices.Contains(messages, "a1/1") {
					return stored
				}
				return never
			}}
			config := testConfig()
			config.Scope, config.Refusals = scope, &memoryRefusals{}
			p := start(config, bus, openFence{})
			publishInTurn(t, p, 3, 30)
			finish(t, p, run(t.Context(), p), 30)
			require.EqualValues(t, 2, alone.Load())
		})
	}
}

// An entity that is not partitioned gets batches of many sessions. How many depends on the events
// that wait when a batch is filled.
func TestBatchesOfAnEntityWithoutPartitionsHoldManySessions(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		bus := publishAll(t, 500, func([]string) outcome { return stored })
		most := 0
		for _, batch := range bus.arrived {
			most = max(most, len(sessionsOf(batch)))
		}
		require.Greater(t, most, 4*learningSessions)
	})
}
