package publish

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/virtualtime"
)

// G1: an event that is not acknowledged, while all others are, holds the checkpoint, and must not
// make the watermark remember all the others: reading pauses.
func TestMemoryBehindAStuckEventIsBounded(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		bus := &memoryBroker{capacity: 10, before: func(_ context.Context, messages []string) outcome {
			if messages[0] == "stuck/1" {
				<-release
			}
			return stored
		}}
		config := testConfig()
		config.MaxEvents = 10
		p := start(config, bus, openFence{})
		done := run(t.Context(), p)
		const events = 1000
		var published atomic.Int64
		var publishing sync.WaitGroup
		publishing.Go(func() {
			defer p.Close()
			for n := range events {
				aggregate := fmt.Sprintf("a%d", n)
				if n == 0 {
					aggregate = "stuck"
				}
				c, progress := event(aggregate, 1, n)
				if p.Publish(t.Context(), c, progress) != nil {
					return
				}
				published.Add(1)
			}
		})
		virtualtime.Wait()
		require.EqualValues(t, maxLead*config.MaxEvents, published.Load(), "others go ahead of it, and not for ever")
		require.EqualValues(t, 1, p.InFlight())
		require.Empty(t, p.Progress().Position)
		close(release)
		publishing.Wait()
		require.NoError(t, <-done)
		require.EqualValues(t, events, p.Progress().Published)
	})
}
