package projector_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// endless is a timeline that does not return from events of the type Endless until it is released.
type endless struct {
	projection.Timeline
	until chan struct{}
}

func (endless) Name() string { return "endless" }

func (p endless) Project(e projection.Event) ([]projection.Write, error) {
	if e.Type == "Endless" {
		<-p.until
	}
	return p.Timeline.Project(e)
}

// G5: an event from which the projection does not return is logged, delays no other aggregate of
// its session, and is parked like one that fails; and the projector stops in time. A projection
// that returns eventually has its effect.
func TestG5AProjectionThatDoesNotReturnHoldsUpNoNeighbour(t *testing.T) {
	for name, returns := range map[string]bool{"never": false, "in the end": true} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(w *world.World) {
				until := make(chan struct{})
				end := sync.OnceFunc(func() { close(until) })
				defer end()
				key := envelope.Buckets(1)
				in := func(aggregate string, n int, eventType string) {
					c := event(aggregate, n, eventType)
					c.Session = key.Session(aggregate)
					publish(w, c)
				}
				p := w.StartProjector(func(c *projector.Config, o *projector.Options) {
					runs(endless{until: until})(c, o)
				})
				in("hung", 1, "Endless")
				in("hung", 2, "T")
				for n := 1; n <= 40; n++ {
					began := time.Now()
					in("healthy", n, "T")
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
					in("hung", 3, "Endless")
					in("hung", 4, "T")
					w.Pass(time.Second)
					require.Equal(w, []string{
						"hung/1 Undecided", "hung/2 AggregateParked", "hung/3 AggregateParked", "hung/4 AggregateParked",
					}, deadLetters(w), "what comes behind is set aside without the projection")
					in("another", 1, "Endless")
					w.Pass(5 * time.Second)
				}
				began := time.Now()
				_, err := p.End()
				require.NoError(w, err)
				require.Less(w, time.Since(began), 20*time.Second, "SHUTDOWN_TIMEOUT")
			})
		})
	}
}
