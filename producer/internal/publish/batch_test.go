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

// A namespace that does not state how large a batch may be takes 1 MB, however large its messages may be.
func TestTheRoomOfABatchIsStatedOrOneMegabyte(t *testing.T) {
	stated := func(v any) map[string]any { return map[string]any{"com.microsoft:max-message-batch-size": v} }
	for _, c := range []struct {
		properties map[string]any
		message    uint64
		room       uint64
	}{
		{nil, 256 << 10, 256 << 10},
		{nil, 100 << 20, 1 << 20},
		{nil, 0, 1 << 20},
		{stated(uint64(256 << 10)), 1 << 20, 256 << 10},
		{stated(int64(1 << 20)), 100 << 20, 1 << 20},
		{stated(int32(4 << 20)), 100 << 20, 4 << 20},
		{stated(int64(-1)), 100 << 20, 1 << 20},
		{stated("1048576"), 100 << 20, 1 << 20},
	} {
		require.Equal(t, c.room, batchRoom(c.properties, c.message), "%v %d", c.properties, c.message)
	}
}

// A batch that ends its link for what it is, and each of whose parts is taken, makes the next batches smaller: they do not end the link
// one after another.
func TestABatchWhosePartsAreTakenMakesTheNextSmaller(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		objections := 0
		broker := &memoryBroker{capacity: 100, before: func(_ context.Context, messages []string) outcome {
			mu.Lock()
			defer mu.Unlock()
			if len(messages) > 10 {
				objections++
				return objecting
			}
			return stored
		}}
		p := start(testConfig(), broker, openFence{})
		for n := range 1000 {
			c, progress := event(fmt.Sprintf("a%d", n%2), n/2+1, n)
			require.NoError(t, p.Publish(t.Context(), c, progress))
		}
		p.Close()
		require.NoError(t, p.Run(t.Context()))
		require.EqualValues(t, 1000, p.Progress().Published)
		require.Less(t, objections, 80, "of 1000 events in batches of 100")
		require.LessOrEqual(t, p.batchMessages.Load(), int64(12))
	})
}

// What was objected to for the session, and passes later, makes no batch smaller.
func TestASessionThatWasAwayMakesNoBatchSmaller(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		begun := time.Now()
		broker := &memoryBroker{capacity: 100, before: func(context.Context, []string) outcome {
			if time.Since(begun) < 5*time.Second {
				return objecting
			}
			return stored
		}}
		config := testConfig()
		p := start(config, broker, openFence{})
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
