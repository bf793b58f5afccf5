package publish

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/producer/internal/broker"
	"github.com/sluice-cdc/sluice/shared/virtualtime"
)

// movingFence is always four seconds ahead until the heartbeats end.
type movingFence struct{ ends time.Time }

func (f movingFence) Deadline() time.Time {
	if now := time.Now(); now.Before(f.ends) {
		return now.Add(4 * time.Second)
	}
	return f.ends.Add(4 * time.Second)
}

// slow takes this long for every send, or until the attempt times out.
func slow(takes time.Duration) func(context.Context, []string) outcome {
	return func(ctx context.Context, _ []string) outcome {
		timer := time.NewTimer(takes)
		defer timer.Stop()
		select {
		case <-timer.C:
			return stored
		case <-ctx.Done():
			return silent
		}
	}
}

// G4: no matter how long the send timeout has become, a send ends at the fence when the heartbeats
// end.
func TestG4ALongSendDoesNotOutliveTheFence(t *testing.T) {
	for _, beats := range []time.Duration{0, 50 * time.Second} {
		virtualtime.Test(t, func(t *testing.T) {
			ends := time.Now().Add(beats)
			var last time.Time
			bus := &memoryBroker{capacity: 10}
			never := slow(time.Hour)
			bus.before = func(ctx context.Context, messages []string) outcome {
				o := never(ctx, messages)
				last = time.Now()
				return o
			}
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			defer cancel()
			p := start(testConfig(), bus, movingFence{ends})
			done := run(ctx, p)
			publishEvent(t, p, "a0", 1, 1)
			require.ErrorIs(t, <-done, context.DeadlineExceeded)
			require.Equal(t, ends.Add(4*time.Second), last)
			require.Positive(t, testutil.ToFloat64(p.metrics.unknown))
		})
	}
}

// A connection that cannot be opened does not extend the timeout: when the network is back, no lane
// waits for an attempt that started before.
func TestOnlySendsExtendTheSendTimeout(t *testing.T) {
	var p sendTimeout
	timedOut := context.DeadlineExceeded
	p.adjust(4*time.Second, 4*time.Second, timedOut, true)
	require.Zero(t, p.current())
	p.adjust(4*time.Second, time.Second, fmt.Errorf("%w: reset", broker.ErrUnknown), false)
	require.Zero(t, p.current(), "it was not for lack of time")

	p.adjust(4*time.Second, 4*time.Second, fmt.Errorf("%w: %w", broker.ErrUnknown, timedOut), true)
	require.Equal(t, 8*time.Second, p.current())
	p.adjust(4*time.Second, 4*time.Second, fmt.Errorf("%w: %w", broker.ErrUnknown, timedOut), true)
	require.Equal(t, 8*time.Second, p.current(), "another lane's attempt of the same time teaches nothing new")
	for range 5 {
		p.adjust(p.current(), p.current(), broker.ErrUnknown, true)
	}
	require.Equal(t, maxSendTimeout, p.current())
	p.adjust(p.current(), 20*time.Second, nil, false)
	require.Equal(t, maxSendTimeout, p.current(), "it is needed")
	for range 100 {
		p.adjust(p.current(), time.Millisecond, nil, false)
	}
	require.Less(t, p.current(), time.Second, "sends are fast again")
	p.adjust(time.Minute, time.Minute, errors.New("unheard of"), true)
	require.Less(t, p.current(), time.Second)
}
