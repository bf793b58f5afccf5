package projector_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// undecided returns a shape that fails, with an unlisted error, at events of the type Unlisted.
func undecided(s shape) shape {
	s.project = before(s.project, func(e projection.Event) error {
		if e.Type != "Unlisted" {
			return nil
		}
		time.Sleep(50 * time.Millisecond) // so that a test in which a caller retries without a pause ends as well
		return errors.New("refused for what it is, by an unlisted code")
	})
	return s
}

// G5: as many aggregates as there are workers fail without end, each for a reason of its own. The
// other aggregates continue. Eventually the failing ones are parked, with their errors.
func TestG5AggregatesThatFailForDifferentReasonsHoldUpNoOther(t *testing.T) {
	eachShape(t, func(w *world.World, s shape) {
		s = undecided(s)
		for n := range 8 { // as many as MAX_SESSIONS
			publish(w, event(fmt.Sprintf("bad-%d", n), 1, "Unlisted"))
		}
		p := w.StartProjector(s.settings)
		w.Pass(5 * time.Second)
		for n := 1; n <= 16; n++ {
			began := time.Now()
			publish(w, event("healthy", n, "T"))
			w.Completed(n)
			require.Less(w, time.Since(began), 10*time.Second, "the healthy one waited for the others")
			w.Pass(time.Minute)
		}
		deadLettered(w, 8)
		for _, letter := range deadLetters(w) {
			require.Contains(w, letter, " Undecided")
		}
		require.Contains(w, parked(w, s.guards, "bad-0").Description, "events of other aggregates were: project event: refused for what it is")
		require.NotContains(w, p.Log.Text(), "works again")
		require.Contains(w, p.Log.Text(), `"msg":"an event cannot be applied; it is retried, and its aggregate waits","aggregate":"bad-0","session":"bad-0"`)
		require.Zero(w, w.Bus.Stats(world.SubscriptionPath).Redelivered, "a delivery count rose")
	})
}

// G5: an aggregate of a shared session fails, with one event among those of others, or with more
// than are received at once. The decided messages of the others are settled, and they continue.
func TestG5ManyFailuresHoldUpNoNeighbour(t *testing.T) {
	for bad, batch := range map[int]int{1: 100, 30: 5} {
		for _, receiver := range []string{"direct", "sdk"} {
			eachShapeOf(t, fmt.Sprint(bad, " ", receiver), func(w *world.World, s shape) {
				s = undecided(s)
				s.adjust = func(c *projector.Config) { c.SessionReceiver, c.ReceiveBatch = receiver, batch }
				for n := 1; n <= bad; n++ {
					publishTogether(w, event("bad", n, "Unlisted"))
				}
				for n := 1; n <= 50; n++ {
					publishTogether(w, event("healthy", n, "T"))
				}
				w.StartProjector(s.settings)
				w.Completed(50)
				publishTogether(w, event("healthy", 51, "T"))
				w.Completed(51)
				require.Equal(w, 51, s.applied(w, "healthy"))
				require.Zero(w, s.applied(w, "bad"))
				stats := w.Bus.Stats(world.SubscriptionPath)
				require.Zero(w, stats.DeadLettered+stats.Redelivered)
			})
		}
	}
}

// G2, G5: an event that fails once, and might succeed, is before a poison in the same batch: it is
// applied, and the poison parks.
func TestG2G5APoisonDoesNotParkBeforeWhatComesFirst(t *testing.T) {
	for _, kind := range []string{"Poison", "Garbage"} {
		eachShapeOf(t, kind, func(w *world.World, s shape) {
			w.FailMongo(1, 16732, "update")
			publish(w, event("a", 1, "T"))
			if kind == "Poison" {
				publish(w, event("a", 2, "Poison"))
			} else {
				m := encode(w, event("a", 2, "T"))
				m.Body = m.Body[:len(m.Body)/2]
				send(w, m)
			}
			publish(w, event("a", 3, "T"))
			w.StartProjector(s.settings)
			deadLettered(w, 2)
			w.Completed(1)
			require.Equal(w, 1, s.applied(w, "a"))
			reason := map[string]string{"Poison": "ProjectionFailed", "Garbage": "UndecodableBody"}[kind]
			require.Equal(w, []string{"a/2 " + reason, "a/3 AggregateParked"}, deadLetters(w))
		})
	}
}

// G1, G5: an unknown code concerns the event, and is not an outage of the database: neighbours in
// the same write are applied.
func TestG1G5AnUnknownCodeIsRetriedOneByOne(t *testing.T) {
	eachShape(t, func(w *world.World, s shape) {
		w.FailMongo(4, 16732, "update")
		publishTogether(w, rounds(3, 1, 3)...)
		p := w.StartProjector(s.settings)
		w.Completed(9)
		p.MustEnd()
		for _, name := range []string{"a0", "a1", "a2"} {
			requireRight(w, s, name, 3)
		}
		require.Zero(w, w.Bus.Stats(world.SubscriptionPath).DeadLettered)
		require.NotContains(w, p.Log.Text(), "dependency fails")
	})
}

// G1, G2: a transaction that is too large, or too slow, of one aggregate or of several, is split
// into smaller ones, down to one event.
func TestG1G2ATransactionThatIsTooLargeIsSplit(t *testing.T) {
	for name, test := range map[string]struct {
		aggregates, events, code, times int
		parked                          string
	}{
		"the first three":                  {1, 8, 257, 3, ""},
		"the cache":                        {1, 8, 359, 2, ""},
		"one event alone, which is parked": {1, 8, 257, 4, "WriteRefused"},
		"several, the first":               {8, 2, 257, 1, ""},
		"several, the first three":         {8, 2, 257, 3, ""},
		"several, the cache":               {8, 2, 359, 2, ""},
	} {
		subtest(t, name, func(w *world.World) {
			s := together()
			w.FailMongo(test.times, test.code, "commitTransaction")
			changes := rounds(test.aggregates, 1, test.events)
			publishTogether(w, changes...)
			p := w.StartProjector(s.settings)
			decided(w, len(changes))
			p.MustEnd()
			require.Equal(w, test.parked, parked(w, s.guards, "a0").Reason)
			if test.parked != "" {
				require.Equal(w, "a0/1 WriteRefused", deadLetters(w)[0])
				require.Zero(w, s.applied(w, "a0"))
				require.Equal(w, 0, operate(w, s, "parked", "replay", "a0").Code)
			}
			for a := range test.aggregates {
				requireRight(w, s, fmt.Sprint("a", a), test.events)
			}
			require.Equal(w, len(changes), total(w))
			require.Empty(w, deadLetters(w))
		})
	}
}

// G1, G2: a batch whose transaction takes longer than APPLY_TIMEOUT is written in parts.
func TestG1G2ATransactionThatIsTooSlowIsSplit(t *testing.T) {
	inVirtualTime(t, func(w *world.World) {
		s := shapes()[1]
		s.adjust = func(c *projector.Config) { c.ApplyTimeout = time.Second }
		const events = 16
		s.project = before(s.project, func(projection.Event) error {
			time.Sleep(100 * time.Millisecond)
			return nil
		})
		publish(w, rounds(1, 1, events)...)
		p := w.StartProjector(s.settings)
		w.Completed(events)
		p.MustEnd()
		requireRight(w, s, "a0", events)
		require.Zero(w, w.Bus.Stats(world.SubscriptionPath).Redelivered)
	})
}

// G5: a write that breaks a unique index is permanently refused, even if the server does not name
// the index: the guard would allow the write.
func TestG5AUniqueIndexThatIsNotNamedParks(t *testing.T) {
	inVirtualTime(t, func(w *world.World) {
		p := w.StartProjector(nil)
		publish(w, event("a", 1, "T"))
		w.Completed(1)
		w.FailMongo(3, 11000, "update")
		publish(w, event("a", 2, "T"))
		deadLettered(w, 1)
		p.MustEnd()
		require.Equal(w, []string{"a/2 WriteRefused"}, deadLetters(w))
	})
}
