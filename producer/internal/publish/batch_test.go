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

// A batch that causes its link to be closed, although each of its parts is accepted, makes the next
// batches smaller, so that they do not close one link after another.
func TestABatchWhosePartsAreAcceptedMakesTheNextSmaller(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		objections := 0
		bus := &memoryBroker{capacity: 100, before: func(_ context.Context, messages []string) outcome {
			mu.Lock()
			defer mu.Unlock()
			if len(messages) > 10 {
				objections++
				return objecting
			}
			return stored
		}}
		p := start(testConfig(), bus, openFence{})
		publishInTurn(t, p, 2, 1000)
		finish(t, p, run(t.Context(), p), 1000)
		// Each of the two sessions has at most one batch of 100, 50, 25 and 12: 18, 10, 6 and 4
		// objections, until its parts have at most ten messages.
		require.LessOrEqual(t, objections, 2*(18+10+6+4))
		require.LessOrEqual(t, p.batchMessages.get(time.Now()), 12)
	})
}

// An objection that concerned the session, and passes later, makes no batch smaller.
func TestAnUnavailableSessionMakesNoBatchSmaller(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		begun := time.Now()
		bus := &memoryBroker{capacity: 100, before: func(context.Context, []string) outcome {
			if time.Since(begun) < 5*time.Second {
				return objecting
			}
			return stored
		}}
		config := testConfig()
		p := start(config, bus, openFence{})
		publishInTurn(t, p, 5, 1000)
		finish(t, p, run(t.Context(), p), 1000)
		require.Equal(t, config.BatchMessages, p.batchMessages.get(time.Now()))
	})
}

// A limit that an objection has lowered rises again: the objection may have been an outage.
func TestABatchThatBecameSmallerGrowsAgain(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		begun := time.Now()
		sizes := make(chan int, 10_000)
		bus := &memoryBroker{capacity: 100, before: func(_ context.Context, messages []string) outcome {
			time.Sleep(10 * time.Millisecond) // the network's latency, in virtual time: all events wait meanwhile
			if time.Since(begun) < time.Minute && len(messages) > 10 {
				return objecting
			}
			sizes <- len(messages)
			return stored
		}}
		p := start(testConfig(), bus, openFence{})
		var running sync.WaitGroup
		var ended error
		running.Go(func() { ended = p.Run(t.Context()) })
		largest := 0
		for hour := range 12 {
			for n := 1000 * hour; n < 1000*(hour+1); n++ {
				publishEvent(t, p, fmt.Sprintf("a%d", n%2), n/2+1, n)
			}
			time.Sleep(time.Hour)
			for largest = 0; len(sizes) > 0; {
				largest = max(largest, <-sizes)
			}
			if hour == 0 {
				require.LessOrEqual(t, largest, 10)
			}
		}
		p.Close()
		running.Wait()
		require.NoError(t, ended)
		require.EqualValues(t, 12_000, p.Progress().Published)
		require.Equal(t, 100, largest)
	})
}

// A broker that objects each time is offered more ever less often. Once it has accepted more for a
// long time, the waits begin with the shortest again.
func TestASizeThatIsObjectedToIsOfferedEverLessOften(t *testing.T) {
	var limit sizeLimit
	limit.set(100)
	now := time.Unix(0, 0)
	limit.lower(now, 50)
	var offered []time.Duration
	for last := now; len(offered) < 10; {
		now = now.Add(time.Minute)
		if limit.get(now) > 50 {
			offered, last = append(offered, now.Sub(last)), now
			limit.lower(now, 50)
		}
	}
	const m, day = time.Minute, 24 * time.Hour
	require.Equal(t, []time.Duration{10 * m, 20 * m, 40 * m, 80 * m, 160 * m, 320 * m, 640 * m, 1280 * m, day, day}, offered)

	now = now.Add(day)
	require.Equal(t, 100, limit.get(now))
	now = now.Add(2 * day)
	limit.lower(now, 50)
	require.Equal(t, 50, limit.get(now.Add(9*m)))
	require.Equal(t, 100, limit.get(now.Add(10*m)))
}
