package projector_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	mongoevent "go.mongodb.org/mongo-driver/v2/event"

	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// stalledAsItSetsAside starts a projector whose connection to the broker stalls when it has counted
// an event that it sets aside, after armed.
type stalledAsItSetsAside struct {
	projector      *world.Projector
	armed, counted atomic.Bool
	request        atomic.Int64
}

func (x *stalledAsItSetsAside) settings(s shape) func(*projector.Config, *projector.Options) {
	return monitored(s.settings, &mongoevent.CommandMonitor{
		Started: func(_ context.Context, e *mongoevent.CommandStartedEvent) {
			if command := e.Command.String(); x.armed.Load() && strings.Contains(command, "$inc") && strings.Contains(command, "parked.later") {
				x.request.Store(e.RequestID)
			}
		},
		Succeeded: func(_ context.Context, e *mongoevent.CommandSucceededEvent) {
			if e.RequestID == x.request.Load() && x.armed.CompareAndSwap(true, false) {
				x.projector.BusPlug.Stall()
				x.counted.Store(true)
			}
		},
	})
}

// G1, G5: a replay ends no parking while an event of the aggregate is being moved to the
// dead-letter queue, whichever session it came in: two streams that feed an aggregate may have
// different session keys.
func TestG1G5ReplayWaitsForEverySessionThatSetsAside(t *testing.T) {
	eachShape(t, func(w *world.World, s shape) {
		other := func(n int) envelope.Change {
			c := paid("a", n, "T")
			c.Session, c.Version = "bucket-0", 0
			return c
		}
		plain := func(n int, eventType string) envelope.Change {
			c := event("a", n, eventType)
			c.Version = 0
			return c
		}
		var x stalledAsItSetsAside
		x.projector = w.StartProjector(x.settings(s))
		publish(w, plain(1, "T"))
		publish(w, other(1))
		w.Completed(2)
		publish(w, plain(2, "Poison"))
		deadLettered(w, 1)
		w.Pass(10 * time.Second) // the session is given back
		s.fixed.Store(true)
		x.armed.Store(true)
		publish(w, other(2))
		w.Eventually("it is counted", x.counted.Load)

		replayed := operate(w, s, "parked", "replay", "a", "--wait", "10s")
		require.Equal(w, 1, replayed.Code, "the parking is ended while an event is on its way")
		require.Contains(w, replayed.Err, "a projector holds the session bucket-0")
		x.projector.BusPlug.Resume()
		w.Pass(10 * time.Second)
		publish(w, other(3))
		w.Pass(10 * time.Second)
		require.Equal(w, 0, operate(w, s, "parked", "replay", "--all").Code)

		total := s.applied(w, "a")
		if s.name == "ledger" {
			total += s.applied(w, "a/paid")
		}
		require.Equal(w, 5, total, "an event was lost")
		require.Empty(w, deadLetters(w))
		x.projector.MustEnd()
	})
}

// G1, G5: a replay that waits for such a session applies the event that is dead-lettered in the
// meantime.
func TestG1G5ReplayAppliesWhatIsSetAsideWhileItWaits(t *testing.T) {
	eachShape(t, func(w *world.World, s shape) {
		var x stalledAsItSetsAside
		x.projector = w.StartProjector(x.settings(s))
		publish(w, event("a", 1, "T"), event("a", 2, "Poison"))
		deadLettered(w, 1)
		w.Pass(10 * time.Second) // the session is given back
		s.fixed.Store(true)
		x.armed.Store(true)
		publish(w, event("a", 3, "T"))
		w.Eventually("it is counted", x.counted.Load)
		done := make(chan world.Operated, 1)
		go func() { done <- operate(w, s, "parked", "replay", "--all") }()
		w.Pass(10 * time.Second)
		x.projector.BusPlug.Resume()
		require.Equal(w, 0, (<-done).Code)
		requireRight(w, s, "a", 3)
		require.Empty(w, deadLetters(w))
		x.projector.MustEnd()
	})
}
