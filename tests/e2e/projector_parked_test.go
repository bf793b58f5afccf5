package e2e

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/projector"
)

// eachShape runs f for a projection with one document per aggregate, and for one with a record of positions.
func eachShape(t *testing.T, f func(w *projectorWorld, s shape)) {
	t.Helper()
	for _, s := range shapes() {
		t.Run(s.name, func(t *testing.T) { inBubble(t, func(w *projectorWorld) { f(w, s) }) })
	}
}

// G5: a poison in the middle parks its aggregate. What follows it lies in the dead-letter queue in order, and the other
// aggregates never notice.
func TestG5PoisonParksItsAggregateAndNothingElse(t *testing.T) {
	eachShape(t, func(w *projectorWorld, s shape) {
		p := w.start(func(c *projector.Config, o *projector.Options) {
			s.settings(nil)(c, o)
			c.StatusInterval = 15 * time.Second
		})
		w.publish(event("a", 1, "T"), event("a", 2, "T"), event("a", 3, "Poison"), event("a", 4, "T"), event("a", 5, "Poison"))
		for n := 1; n <= 4; n++ {
			w.publish(event("b", n, "T"))
			w.publish(event("c", n, "T"))
		}
		w.deadLettered(3)
		// The aggregate stays parked when its session is idle and comes again.
		w.pass(time.Minute)
		w.publish(event("a", 6, "Touch"), event("a", 7, "T"))
		w.publish(event("b", 5, "T"))
		w.completed(2 + 9)
		w.deadLettered(5)

		require.Equal(w, []string{
			"a/3 ProjectionFailed", "a/4 AggregateParked", "a/5 AggregateParked", "a/6 AggregateParked", "a/7 AggregateParked",
		}, w.deadLetters())
		require.Equal(w, []int{2, 5, 4}, []int{s.applied(w, "a"), s.applied(w, "b"), s.applied(w, "c")})
		record := w.parked(s.guards, "a")
		require.Equal(w, parkedRecord{
			MessageID: messageID(event("a", 3, "Poison")), Position: event("a", 3, "Poison").Position,
			Reason: "ProjectionFailed", Description: "no rule for it", Session: "a", Later: 4,
		}, record)
		require.Empty(w, w.parked(s.guards, "b"))
		require.Contains(w, p.log.text(), `"parked":1}`)
		counted, err := p.end()
		require.NoError(w, err)
		require.Equal(w, 11, counted.Applied)
		require.Equal(w, 5, counted.DeadLettered)
		require.Contains(w, p.log.text(), `"to_do":"projector parked show 'a'"`)
		require.Zero(w, w.bus.Stats(subPath).Redelivered)
	})
}

// G5: several aggregates in one session: only the one with the poison is parked.
func TestG5PoisonParksItsAggregateInASharedSession(t *testing.T) {
	eachShape(t, func(w *projectorWorld, s shape) {
		p := w.start(s.settings(nil))
		for _, c := range []struct {
			aggregate string
			n         int
			eventType string
		}{{"a", 1, "T"}, {"b", 1, "T"}, {"a", 2, "Poison"}, {"b", 2, "T"}, {"a", 3, "T"}, {"c", 1, "T"}, {"b", 3, "T"}} {
			change := event(c.aggregate, c.n, c.eventType)
			change.Session = "bucket-3"
			w.publish(change)
		}
		w.completed(5)
		w.deadLettered(2)
		_, err := p.end()
		require.NoError(w, err)
		require.Equal(w, []int{1, 3, 1}, []int{s.applied(w, "a"), s.applied(w, "b"), s.applied(w, "c")})
		require.Equal(w, []string{"a/2 ProjectionFailed", "a/3 AggregateParked"}, w.deadLetters())
		require.Equal(w, "bucket-3", w.parked(s.guards, "a").Session)
	})
}

// G5: the very first event of an aggregate is poison. There is no document to park, so a stub is made that holds nothing
// else.
func TestG5PoisonComesFirst(t *testing.T) {
	eachShape(t, func(w *projectorWorld, s shape) {
		p := w.start(s.settings(nil))
		w.publish(event("a", 1, "Poison"), event("a", 2, "T"))
		w.deadLettered(2)
		w.publish(event("a", 3, "T"))
		w.deadLettered(3)
		_, err := p.end()
		require.NoError(w, err)
		require.Zero(w, s.applied(w, "a"))
		require.Equal(w, []string{"a/1 ProjectionFailed", "a/2 AggregateParked", "a/3 AggregateParked"}, w.deadLetters())
		require.Equal(w, event("a", 1, "T").Position, w.parked(s.guards, "a").Position)
		if s.name == "mendable" {
			doc, err := w.client.Database(readModel).Collection("timeline").FindOne(w.Context(), bson.D{}).Raw()
			require.NoError(w, err)
			elements, err := doc.Elements()
			require.NoError(w, err)
			require.Len(w, elements, 2, "a stub holds its id and its guard")
			require.True(w, doc.Lookup("_sluice", "empty").Boolean())
		}
	})
}

// G5: the projector dies after it recorded the parking and before it dead-lettered the poison. The next one finishes it: the
// poison keeps its reason, though the new code could apply it.
func TestG5CrashBetweenParkAndDeadLetter(t *testing.T) {
	eachShape(t, func(w *projectorWorld, s shape) {
		first := w.start(s.settings(nil))
		w.publish(event("a", 1, "T"))
		w.completed(1)
		w.block("update", 1, time.Second)
		w.publish(event("a", 2, "Poison"), event("a", 3, "T"))
		w.eventually("the poison is in hand", func() bool { return w.bus.Stats(subPath).Locked > 0 })
		first.busPlug.stall()
		w.eventually("the aggregate is parked", func() bool { return w.parked(s.guards, "a").Reason != "" })
		first.kill()
		require.Zero(w, w.bus.Stats(subPath).DeadLettered)

		s.mended.Store(true)
		second := w.start(s.settings(nil))
		w.deadLettered(2)
		_, err := second.end()
		require.NoError(w, err)
		require.Equal(w, []string{"a/2 ProjectionFailed", "a/3 AggregateParked"}, w.deadLetters())
		require.Equal(w, 1, s.applied(w, "a"))
		require.Equal(w, 2, w.parked(s.guards, "a").Later, "each event was counted before it was set aside")
	})
}

// G5: killed at any point while it parks, a projector leaves nothing that the next one does not finish: the dead letters are
// complete and in order, and the other aggregate is right.
func TestG5ProjectorKilledAnywhereWhileItParks(t *testing.T) {
	step := 3 // with 1 it passes as well, and takes half a minute
	if testing.Short() {
		step = 11
	}
	for _, s := range shapes() {
		t.Run(s.name, func(t *testing.T) {
			for n, finished := 1, false; !finished && !t.Failed(); n += step {
				inBubble(t, func(w *projectorWorld) {
					w.publish(event("a", 1, "T"), event("a", 2, "Poison"), event("a", 3, "T"), event("a", 4, "T"))
					w.publish(event("b", 1, "T"), event("b", 2, "T"))
					first := w.start(s.settings(nil))
					kill := lay(n, first.busPlug, first.mongoPlug)
					done := func() bool {
						stats := w.bus.Stats(subPath)
						return stats.Completed == 3 && stats.DeadLettered == 3
					}
					w.eventually("it is killed, or has finished", func() bool { return kill.hasBlown() || done() })
					finished = !kill.hasBlown()
					first.kill()
					w.start(s.settings(nil))
					w.eventually("everything is settled", done)
					require.Equal(w, []string{"a/2 ProjectionFailed", "a/3 AggregateParked", "a/4 AggregateParked"}, w.deadLetters(), "after %d writes", n)
					require.Equal(w, []int{1, 2}, []int{s.applied(w, "a"), s.applied(w, "b")}, "after %d writes", n)
					require.Equal(w, messageID(event("a", 2, "")), w.parked(s.guards, "a").MessageID)
				})
			}
		})
	}
}

// G5: a message that cannot be read parks the aggregate that it names, and none where it names none.
func TestG5UndecodableParksWhatItNames(t *testing.T) {
	eachShape(t, func(w *projectorWorld, s shape) {
		p := w.start(s.settings(nil))
		w.publish(event("a", 1, "T"))
		w.completed(1)
		nameless := w.encode(event("a", 2, "T"))
		nameless.ApplicationProperties = nil
		w.send(nameless)
		w.deadLettered(1)
		w.publish(event("a", 3, "T"))
		w.deadLettered(2)
		require.Equal(w, parkedRecord{
			MessageID: messageID(event("a", 2, "T")), Reason: "MissingProperty", Session: "a", Later: 1,
			Description: "the message has no cloudEvents_source",
		}, w.parked(s.guards, "a"))

		stray := event("b", 1, "T")
		stray.Session = "bucket-1"
		lost := w.encode(stray)
		lost.ApplicationProperties = nil
		known := event("b", 2, "T")
		known.Session = "bucket-1"
		w.send(lost, w.encode(known))
		w.completed(2)
		w.deadLettered(3)
		_, err := p.end()
		require.NoError(w, err)
		require.Equal(w, 1, s.applied(w, "b"), "nobody can tell whose event it was")
		require.Equal(w, 1, s.applied(w, "a"))
		require.Contains(w, p.log.text(), "its message names no aggregate")
	})
}

// G5: two projectors with different code apply the same events at once. Whoever commits first is right, and the other one
// obeys: never is an event applied behind one that was set aside.
func TestG5ProjectorsOfTwoOpinions(t *testing.T) {
	eachShape(t, func(w *projectorWorld, s shape) {
		strict, lenient := &atomic.Bool{}, &atomic.Bool{}
		lenient.Store(true)
		slow := func(mended *atomic.Bool) *runningProjector {
			return w.start(func(c *projector.Config, o *projector.Options) {
				s.settings(mended)(c, o)
				c.ApplyTimeout = 5 * time.Minute
			})
		}
		// The lenient one is held up in its write beyond its lock; the strict one parks meanwhile.
		first := slow(lenient)
		w.publish(event("a", 1, "T"))
		w.completed(1)
		w.block("update", 1, 2*time.Minute)
		w.publish(event("a", 2, "Poison"), event("a", 3, "T"))
		w.eventually("the poison is in hand", func() bool { return w.bus.Stats(subPath).Locked > 0 })
		w.pass(time.Second)
		first.busPlug.pull()
		second := slow(strict)
		w.deadLettered(2)
		w.pass(3 * time.Minute)
		require.Equal(w, 1, s.applied(w, "a"), "an event was applied behind one that was set aside")
		first.kill()

		// The strict one is held up in its parking; the lenient one applies meanwhile.
		w.publish(event("b", 1, "T"))
		w.completed(2)
		w.block("update", 1, 2*time.Minute)
		w.publish(event("b", 2, "Poison"), event("b", 3, "T"))
		w.eventually("the poison is in hand", func() bool { return w.bus.Stats(subPath).Locked > 0 })
		w.pass(time.Second)
		second.busPlug.pull()
		third := slow(lenient)
		w.completed(4)
		w.pass(3 * time.Minute)
		require.Equal(w, 3, s.applied(w, "b"))
		require.Empty(w, w.parked(s.guards, "b"), "an event that was applied parked its aggregate")
		second.kill()
		_, err := third.end()
		require.NoError(w, err)
		require.Equal(w, []string{"a/2 ProjectionFailed", "a/3 AggregateParked"}, w.deadLetters())
	})
}
