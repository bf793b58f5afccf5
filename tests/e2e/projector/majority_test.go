package projector_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	mongoevent "go.mongodb.org/mongo-driver/v2/event"

	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// G5: an event whose guard does not match while the majority is late is not one that the database
// refuses.
func TestG5ALateMajorityParksNothing(t *testing.T) {
	eachShapeOf(t, "before a missing version", func(w *world.World, s shape) {
		w.StartProjector(s.settings)
		publish(w, event("a", 1, "T"))
		w.Completed(1)
		w.LateMajority(1, "update")
		publish(w, event("a", 3, "T"))
		w.Pass(5 * time.Second)
		publish(w, event("a", 2, "T"))
		w.Pass(2 * time.Minute)
		require.Empty(w, deadLetters(w))
		require.Equal(w, 3, s.applied(w, "a"))
	})
	subtest(t, "at the first event of another stream", func(w *world.World) {
		p := w.StartProjector(nil)
		publish(w, event("a", 1, "T"))
		w.Completed(1)
		w.LateMajority(1, "update")
		publish(w, paid("a", 1, "T"))
		w.Pass(2 * time.Minute)
		require.Empty(w, deadLetters(w))
		require.EqualValues(w, 2, w.TimelineOf("a").Events)
		p.MustEnd()
	})
	subtest(t, "and loses the write", func(w *world.World) {
		w.LateMajority(2, "update")
		var updates atomic.Int64
		w.StartProjector(monitored(nil, &mongoevent.CommandMonitor{Succeeded: func(ctx context.Context, e *mongoevent.CommandSucceededEvent) {
			if e.CommandName == "update" && updates.Add(1) == 2 { // the primary steps down, and its uncommitted writes are rolled back
				_, _ = w.Client.Database(world.ReadModel).Collection("timeline").DeleteOne(context.WithoutCancel(ctx), bson.D{{Key: "_id", Value: "a"}})
			}
		}}))
		publish(w, event("a", 1, "T"))
		w.Pass(2 * time.Minute)
		require.Empty(w, deadLetters(w))
		require.EqualValues(w, 1, w.TimelineOf("a").Events)
	})
}
