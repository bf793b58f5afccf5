package projector_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	mongoevent "go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// G5: an event whose guard does not match while the majority is late is not one that the database
// refuses.
func TestG5ALateMajorityParksNothing(t *testing.T) {
	t.Run("before a missing version", func(t *testing.T) {
		for _, s := range shapes() {
			t.Run(s.name, func(t *testing.T) {
				inVirtualTime(t, func(w *world.World) {
					p := w.StartProjector(s.settings(nil))
					publish(w, event("a", 1, "T"))
					w.Completed(1)
					w.LateMajority(1, "update")
					publish(w, event("a", 3, "T"))
					w.Pass(5 * time.Second)
					publish(w, event("a", 2, "T"))
					w.Pass(2 * time.Minute)
					require.Empty(w, deadLetters(w))
					require.Equal(w, 3, s.applied(w, "a"))
					_, err := p.End()
					require.NoError(w, err)
				})
			})
		}
	})
	t.Run("at the first event of another stream", func(t *testing.T) {
		inVirtualTime(t, func(w *world.World) {
			p := w.StartProjector(nil)
			publish(w, event("a", 1, "T"))
			w.Completed(1)
			w.LateMajority(1, "update")
			publish(w, paid("a", 1, "T"))
			w.Pass(2 * time.Minute)
			require.Empty(w, deadLetters(w))
			require.EqualValues(w, 2, w.TimelineOf("a").Events)
			_, err := p.End()
			require.NoError(w, err)
		})
	})
	t.Run("and loses the write", func(t *testing.T) {
		inVirtualTime(t, func(w *world.World) {
			w.LateMajority(2, "update")
			var updates atomic.Int64
			p := w.StartProjector(func(_ *projector.Config, o *projector.Options) {
				given := o.Mongo
				o.Mongo = func(m *options.ClientOptions) {
					given(m)
					m.SetMonitor(&mongoevent.CommandMonitor{Succeeded: func(ctx context.Context, e *mongoevent.CommandSucceededEvent) {
						if e.CommandName == "update" && updates.Add(1) == 2 { // the primary steps down, and its uncommitted writes are rolled back
							_, _ = w.Client.Database(world.ReadModel).Collection("timeline").DeleteOne(context.WithoutCancel(ctx), bson.D{{Key: "_id", Value: "a"}})
						}
					}})
				}
			})
			publish(w, event("a", 1, "T"))
			w.Pass(2 * time.Minute)
			require.Empty(w, deadLetters(w))
			require.EqualValues(w, 1, w.TimelineOf("a").Events)
			_, err := p.End()
			require.NoError(w, err)
		})
	})
}
