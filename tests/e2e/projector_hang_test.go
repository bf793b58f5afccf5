package e2e

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	mongoevent "go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/shared/envelope"
)

// A commit that MongoDB leaves unanswered keeps nobody longer than APPLY_TIMEOUT: neither the projector's stop, nor who applies
// the messages after it, once. It is never followed by an abort, which on a sharded cluster could undo a part of it.
func TestACommitWithoutAnAnswerKeepsNobodyWaiting(t *testing.T) {
	inBubble(t, func(w *projectorWorld) {
		var mu sync.Mutex
		var ends []string // the commands that end transactions; guarded by mu
		ended := func() []string {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(ends)
		}
		monitor := &mongoevent.CommandMonitor{Started: func(_ context.Context, e *mongoevent.CommandStartedEvent) {
			if slices.Contains([]string{"commitTransaction", "abortTransaction"}, e.CommandName) {
				mu.Lock()
				defer mu.Unlock()
				ends = append(ends, e.CommandName)
			}
		}}
		first := w.start(func(c *projector.Config, o *projector.Options) {
			dial := o.Mongo
			c.Projection, o.Mongo = "mirror", func(m *options.ClientOptions) { dial(m); m.SetMonitor(monitor) }
		})
		w.block("commitTransaction", 1, 10*time.Minute)
		w.publish(documentChange("a", 1, envelope.Insert, full("a")))
		w.eventually("the commit is under way", func() bool { return len(ended()) > 0 })
		asked := time.Now()
		_, err := first.end()
		require.NoError(w, err)
		require.LessOrEqual(w, time.Since(asked), 15*time.Second)
		require.Equal(w, []string{"commitTransaction"}, ended())
		require.Equal(w, 1, w.bus.Stats(subPath).Active)
		require.Empty(w, w.mirrored("a"))

		second := w.start(func(c *projector.Config, _ *projector.Options) { c.Projection = "mirror" })
		w.pass(2 * time.Minute) // longer than a transaction lives
		w.completed(1)
		counted, err := second.end()
		require.NoError(w, err)
		require.Equal(w, 1, counted.Applied)
		require.Zero(w, counted.Redelivered)
		require.Equal(w, `{"_id":"a"}`, w.mirrored("a"))
	})
}
