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
		for n := range 1000 {
			c, progress := event(fmt.Sprintf("a%d", n%2), n/2+1, n)
			require.NoError(t, p.Publish(t.Context(), c, progress))
		}
		p.Close()
		require.NoError(t, p.Run(t.Context()))
		require.EqualValues(t, 1000, p.Progress().Published)
		// Each of the two sessions has at most one batch of 100, 50, 25 and 12: 18, 10, 6 and 4
		// objections, until its parts have at most ten messages.
		require.LessOrEqual(t, objections, 2*(18+10+6+4))
		require.LessOrEqual(t, p.batchMessages.Load(), int64(12))
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
		for n := range 1000 {
			c, progress := event(fmt.Sprintf("a%d", n%5), n/5+1, n)
			require.NoError(t, p.Publish(t.Context(), c, progress))
		}
		p.Close()
		require.NoError(t, p.Run(t.Context()))
		require.EqualValues(t, 1000, p.Progress().Published)
		require.EqualValues(t, config.BatchMessages, p.batchMessages.Load())
	})
}
