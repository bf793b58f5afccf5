package projector_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/envelope"
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
		endCleanly(w, p)
	})
}

// G5: one aggregate of a session that many share fails. The decided messages of the others are
// settled, and they continue.
func TestG5WhatFailsInASharedSessionHoldsUpNoNeighbour(t *testing.T) {
	eachShape(t, func(w *world.World, s shape) {
		s = undecided(s)
		publishTogether(w, event("bad", 1, "Unlisted"))
		for n := 1; n <= 150; n++ {
			publishTogether(w, event("healthy", n, "T"))
		}
		p := w.StartProjector(s.settings)
		w.Completed(150)
		publishTogether(w, event("bad", 2, "T"))
		publishTogether(w, event("healthy", 151, "T"))
		w.Completed(151)
		require.Equal(w, 151, s.applied(w, "healthy"))
		require.Zero(w, s.applied(w, "bad"))
		require.Zero(w, w.Bus.Stats(world.SubscriptionPath).DeadLettered)
		endCleanly(w, p)
	})
}

// G5: an aggregate that fails has more events in a shared session than are received at once. Those
// behind them continue.
func TestG5WhatFailsHoldsUpNoNeighbourHoweverMuchOfItThereIs(t *testing.T) {
	for _, receiver := range []string{"direct", "sdk"} {
		eachShapeOf(t, receiver, func(w *world.World, s shape) {
			s = undecided(s)
			s.adjust = func(c *projector.Config) { c.SessionReceiver, c.ReceiveBatch = receiver, 5 }
			for n := 1; n <= 30; n++ {
				publishTogether(w, event("bad", n, "Unlisted"))
			}
			for n := 1; n <= 50; n++ {
				publishTogether(w, event("healthy", n, "T"))
			}
			p := w.StartProjector(s.settings)
			w.Completed(50)
			publishTogether(w, event("healthy", 51, "T"))
			w.Completed(51)
			require.Equal(w, 51, s.applied(w, "healthy"))
			require.Zero(w, s.applied(w, "bad"))
			stats := w.Bus.Stats(world.SubscriptionPath)
			require.Zero(w, stats.DeadLettered+stats.Redelivered)
			endCleanly(w, p)
		})
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
			p := w.StartProjector(s.settings)
			deadLettered(w, 2)
			w.Completed(1)
			require.Equal(w, 1, s.applied(w, "a"))
			reason := map[string]string{"Poison": "ProjectionFailed", "Garbage": "UndecodableBody"}[kind]
			require.Equal(w, []string{"a/2 " + reason, "a/3 AggregateParked"}, deadLetters(w))
			endCleanly(w, p)
		})
	}
}

// G5: the codes with which indexes refuse a document mean that it is permanently refused.
func TestG5ARefusalByAnIndexParksItsAggregate(t *testing.T) {
	for _, code := range []int{171, 201, 16755, 16766, 17261, 17262} {
		subtest(t, fmt.Sprint(code), func(w *world.World) {
			w.FailMongo(1, code, "update")
			publish(w, event("a", 1, "T"))
			p := w.StartProjector(nil)
			deadLettered(w, 1)
			endCleanly(w, p)
			require.Equal(w, []string{"a/1 WriteRefused"}, deadLetters(w))
		})
	}
}

// G1, G5: an unknown code concerns the event, and is not an outage of the database: neighbours in
// the same write are applied.
func TestG1G5AnUnknownCodeIsRetriedOneByOne(t *testing.T) {
	eachShape(t, func(w *world.World, s shape) {
		var changes []envelope.Change
		for n := 1; n <= 3; n++ {
			changes = append(changes, event("a", n, "T"), event("b", n, "T"), event("c", n, "T"))
		}
		w.FailMongo(4, 16732, "update")
		publishTogether(w, changes...)
		p := w.StartProjector(s.settings)
		w.Completed(9)
		endCleanly(w, p)
		for _, name := range []string{"a", "b", "c"} {
			requireRight(w, s, name, 3)
		}
		require.Zero(w, w.Bus.Stats(world.SubscriptionPath).DeadLettered)
		require.NotContains(w, p.Log.Text(), "dependency fails")
	})
}

// G1, G2: a transaction that is too large, or too slow, is split into smaller ones, down to one
// event.
func TestG1G2ATransactionThatIsTooLargeIsSplit(t *testing.T) {
	for name, test := range map[string]struct {
		code, times int
		parked      string
	}{
		"the first three":                      {257, 3, ""},
		"the cache":                            {359, 2, ""},
		"one event by itself, which is parked": {257, 4, "WriteRefused"},
	} {
		subtest(t, name, func(w *world.World) {
			s := shapes()[1]
			w.FailMongo(test.times, test.code, "commitTransaction")
			var changes []envelope.Change
			for n := 1; n <= 8; n++ {
				changes = append(changes, event("a", n, "T"))
			}
			publish(w, changes...)
			p := w.StartProjector(s.settings)
			w.Eventually("all is decided", func() bool {
				s := w.Bus.Stats(world.SubscriptionPath)
				return s.Completed+s.DeadLettered == 8
			})
			endCleanly(w, p)
			require.Equal(w, test.parked, parked(w, s.guards, "a").Reason)
			if test.parked == "" {
				requireRight(w, s, "a", 8)
			} else {
				require.Equal(w, "a/1 WriteRefused", deadLetters(w)[0])
				require.Zero(w, s.applied(w, "a"))
				require.Equal(w, 0, operate(w, s, "parked", "replay", "a").Code)
				requireRight(w, s, "a", 8)
			}
		})
	}
}

// G1, G2: a batch whose transaction takes longer than APPLY_TIMEOUT is written in parts.
func TestG1G2ATransactionThatIsTooSlowIsSplit(t *testing.T) {
	inVirtualTime(t, func(w *world.World) {
		s := shapes()[1]
		s.adjust = func(c *projector.Config) { c.ApplyTimeout = time.Second }
		const events = 16
		var changes []envelope.Change
		for n := 1; n <= events; n++ {
			changes = append(changes, event("a", n, "T"))
		}
		s.project = before(s.project, func(projection.Event) error {
			time.Sleep(100 * time.Millisecond)
			return nil
		})
		publish(w, changes...)
		p := w.StartProjector(s.settings)
		w.Completed(events)
		endCleanly(w, p)
		requireRight(w, s, "a", events)
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
		endCleanly(w, p)
		require.Equal(w, []string{"a/2 WriteRefused"}, deadLetters(w))
	})
}
