package publish

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/producer/internal/broker"
	"github.com/sluice-cdc/sluice/shared/virtualtime"
)

// The publisher waits for a busy broker for as long as it takes, with few attempts and without
// stepping down: another leader would have to wait as well.
func TestThePublisherWaitsForABusyBroker(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		var throttling atomic.Bool
		var attempts atomic.Int64
		throttling.Store(true)
		bus := &memoryBroker{capacity: 10, before: func(context.Context, []string) outcome {
			attempts.Add(1)
			if throttling.Load() {
				return busy
			}
			return stored
		}}
		config := testConfig()
		config.StallAfter = time.Minute
		p := start(config, bus, openFence{})
		done := run(t.Context(), p)
		for n := range 100 {
			publishEvent(t, p, fmt.Sprintf("a%d", n), 1, n)
		}
		time.Sleep(10 * time.Minute) // in virtual time
		require.Zero(t, p.Progress().Published)
		require.Equal(t, 1, p.Lanes())
		require.LessOrEqual(t, attempts.Load(), int64(4*10*60/4), "four lanes, every four seconds")
		throttling.Store(false)
		finish(t, p, done, 100)
		require.GreaterOrEqual(t, testutil.ToFloat64(p.metrics.busy), 100.0)
	})
}

// G1: a broker that only reports that it is busy for half an hour does not hide the fact that
// nothing is published: another leader would use another connection.
func TestG1TheWaitForABusyBrokerEnds(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		bus := &memoryBroker{capacity: 10, before: func(context.Context, []string) outcome { return busy }}
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
	})
}

// G6: a batch that the broker permanently refuses is not sent forever. The error names the events,
// and none of them is in the checkpoint.
func TestG6APermanentlyRefusedBatchIsAnError(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		bus := &memoryBroker{capacity: 10, before: func(context.Context, []string) outcome { return never }}
		p := start(testConfig(), bus, openFence{})
		publishEvent(t, p, "bad-one", 1, 1)
		err := p.Run(t.Context())
		require.ErrorIs(t, err, broker.ErrRefused)
		require.ErrorContains(t, err, `insert of aggregate "bad-one" at 82000001`)
		require.ErrorContains(t, err, "ON_REFUSED=park", "how to go on")
		require.Zero(t, p.Progress().Published)
		require.InDelta(t, 1, testutil.ToFloat64(p.metrics.refusals), 0)
	})
}

// G6: an event that cannot be encoded stops the stream and is counted.
func TestG6AnEventThatCannotBeEncodedIsAnError(t *testing.T) {
	p := start(testConfig(), &memoryBroker{capacity: 10}, openFence{})
	c, progress := event("a0", 1, 1)
	c.Body = []byte("no BSON")
	require.NoError(t, p.Publish(t.Context(), c, progress))
	err := p.Run(t.Context())
	require.ErrorContains(t, err, "encode change at "+c.Position)
	require.InDelta(t, 1, testutil.ToFloat64(p.metrics.refusals), 0)
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
