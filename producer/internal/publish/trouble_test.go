package publish

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/producer/internal/broker"
	"github.com/sluice-cdc/sluice/shared/virtualtime"
)

// G1: a broker that only reports that it is busy for half an hour does not hide the fact that
// nothing is published: another leader would use another connection. Until then it is asked seldom.
func TestG1TheWaitForABusyBrokerEnds(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		attempts := 0
		bus := &memoryBroker{capacity: 10, before: func(context.Context, []string) outcome {
			attempts++
			return busy
		}}
		config := testConfig()
		config.StallAfter = time.Minute
		p := start(config, bus, openFence{})
		publishEvent(t, p, "a", 1, 1)
		begun := time.Now()
		err := p.Run(t.Context())
		require.ErrorIs(t, err, ErrStalled)
		require.ErrorIs(t, err, broker.ErrBusy, "the cause is in the last failure that operators see")
		require.Greater(t, time.Since(begun), 29*time.Minute)
		require.Less(t, time.Since(begun), 32*time.Minute)
		require.LessOrEqual(t, attempts, 32*60/4, "every four seconds")
		require.InDelta(t, attempts, testutil.ToFloat64(p.metrics.busy), 0)
		require.Equal(t, 1, p.Lanes())
	})
}

// G1: batches that are outstanding when an event turns out to be unsendable are acknowledged first,
// and so are the events before it in its own session. Otherwise they would be cut off after every
// restart, and the checkpoint would never reach the event.
func TestG1AnUnsendableEventCutsOffNothingBeforeIt(t *testing.T) {
	for _, scope := range []Scope{ScopeSession, ScopeMixed, ScopeAuto} {
		virtualtime.Test(t, func(t *testing.T) {
			bus := &memoryBroker{capacity: 10, before: slow(time.Second)}
			config := testConfig()
			config.Scope = scope
			p := start(config, bus, openFence{})
			for n, aggregate := range []string{"a", "b", "c", "c", "c"} {
				c, progress := event(aggregate, n+1, n)
				if n == 4 {
					c.Body = []byte("no BSON")
				}
				require.NoError(t, p.Publish(t.Context(), c, progress))
			}
			require.ErrorContains(t, p.Run(t.Context()), "encode change at 82000004")
			require.EqualValues(t, 4, p.Progress().Published)
			require.InDelta(t, 1, testutil.ToFloat64(p.metrics.refusals), 0)
		})
	}
}

// A batch that is acknowledged after many failures is not suspect because another one was
// acknowledged before it: it is not sent again.
func TestABatchThatIsAcknowledgedAtLastIsNotSentAgain(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		begun := time.Now()
		var accepted atomic.Int64
		bus := &memoryBroker{capacity: 10, before: func(context.Context, []string) outcome {
			if time.Since(begun) < 20*time.Second {
				return silent
			}
			accepted.Add(1)
			return stored
		}}
		const sessions = 4
		p := start(testConfig(), bus, openFence{})
		publishInTurn(t, p, sessions, sessions)
		finish(t, p, run(t.Context(), p), sessions)
		require.EqualValues(t, sessions, accepted.Load())
	})
}
