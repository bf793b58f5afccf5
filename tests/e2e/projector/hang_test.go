package projector_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	mongoevent "go.mongodb.org/mongo-driver/v2/event"

	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// A commit that MongoDB leaves unanswered delays the projector's stop, and the projector that
// applies the messages after it, by at most APPLY_TIMEOUT. It is never followed by an abort, which
// on a sharded cluster could undo a part of it.
func TestACommitWithoutAnAnswerDelaysAStopByItsTimeout(t *testing.T) {
	inVirtualTime(t, func(w *world.World) {
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
		mirror := func(c *projector.Config, _ *projector.Options) { c.Projection = "mirror" }
		first := w.StartProjector(monitored(mirror, monitor))
		w.DelayMongo(1, 10*time.Minute, "commitTransaction")
		publish(w, documentChange("a", 1, envelope.Insert, full("a")))
		w.Eventually("the commit is under way", func() bool { return len(ended()) > 0 })
		asked := time.Now()
		first.MustEnd()
		require.LessOrEqual(w, time.Since(asked), 15*time.Second)
		require.Equal(w, []string{"commitTransaction"}, ended())
		require.Equal(w, 1, w.Bus.Stats(world.SubscriptionPath).Active)
		require.Empty(w, mirrored(w, "a"))

		second := w.StartProjector(mirror)
		w.Pass(2 * time.Minute) // longer than a transaction lives
		w.Completed(1)
		counted := second.MustEnd()
		require.Equal(w, 1, counted.Applied)
		require.Zero(w, counted.Redelivered)
		require.Equal(w, `{"_id":"a"}`, mirrored(w, "a"))
	})
}
