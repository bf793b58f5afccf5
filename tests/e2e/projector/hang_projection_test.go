package projector_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// G5: an event from which the projection does not return is logged, delays no other aggregate of
// its session, and is parked like one that fails; and the projector stops in time. A projection
// that returns eventually has its effect.
func TestG5AProjectionThatDoesNotReturnHoldsUpNoNeighbour(t *testing.T) {
	for name, returns := range map[string]bool{"never": false, "in the end": true} {
		subtest(t, name, func(w *world.World) {
			until := make(chan struct{})
			end := sync.OnceFunc(func() { close(until) })
			defer end()
			p := w.StartProjector(runs(before(projection.Timeline{}, func(e projection.Event) error {
				if e.Type == "Endless" {
					<-until
				}
				return nil
			})))
			publishTogether(w, event("hung", 1, "Endless"), event("hung", 2, "T"))
			for n := 1; n <= 40; n++ {
				began := time.Now()
				publishTogether(w, event("healthy", n, "T"))
				w.Completed(n)
				require.Less(w, time.Since(began), 5*time.Second)
				w.Pass(20 * time.Second)
				if returns && n == 5 {
					break
				}
			}
			require.Contains(w, p.Log.Text(), "the projection has not returned from the event")
			require.Zero(w, w.Bus.Stats(world.SubscriptionPath).Redelivered)
			if returns {
				end()
				w.Completed(7)
				require.EqualValues(w, 2, w.TimelineOf("hung").Events)
			} else {
				deadLettered(w, 2)
				require.Equal(w, []string{"hung/1 Undecided", "hung/2 AggregateParked"}, deadLetters(w))
				publishTogether(w, event("hung", 3, "Endless"), event("hung", 4, "T"))
				w.Pass(time.Second)
				require.Equal(w, []string{
					"hung/1 Undecided", "hung/2 AggregateParked", "hung/3 AggregateParked", "hung/4 AggregateParked",
				}, deadLetters(w), "what comes behind is set aside without the projection")
				publishTogether(w, event("another", 1, "Endless"))
				w.Pass(5 * time.Second)
			}
			began := time.Now()
			p.MustEnd()
			require.Less(w, time.Since(began), 20*time.Second, "SHUTDOWN_TIMEOUT")
		})
	}
}
