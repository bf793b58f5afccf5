package projector_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// eachShape runs f for a projection with one document per aggregate, and for one with a record of
// positions.
func eachShape(t *testing.T, f func(w *world.World, s shape)) {
	t.Helper()
	for _, s := range shapes() {
		subtest(t, s.name, func(w *world.World) { f(w, s) })
	}
}

// eachShapeOf is like eachShape below the subtest of that name.
func eachShapeOf(t *testing.T, name string, f func(w *world.World, s shape)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { eachShape(t, f) })
}

// G5: a poison in the middle parks its aggregate. The events behind it are in the dead-letter queue
// in order, and the other aggregates are not affected.
func TestG5PoisonParksItsAggregateAndNothingElse(t *testing.T) {
	eachShape(t, func(w *world.World, s shape) {
		s.adjust = func(c *projector.Config) { c.StatusInterval = 15 * time.Second }
		p := w.StartProjector(s.settings)
		publish(w, event("a", 1, "T"), event("a", 2, "T"), event("a", 3, "Poison"), event("a", 4, "T"), event("a", 5, "Poison"))
		for n := 1; n <= 4; n++ {
			publish(w, event("b", n, "T"))
			publish(w, event("c", n, "T"))
		}
		deadLettered(w, 3)
		// The aggregate stays parked when its session becomes idle and is accepted again.
		w.Pass(time.Minute)
		publish(w, event("a", 6, "Touch"), event("a", 7, "T"))
		publish(w, event("b", 5, "T"))
		w.Completed(2 + 9)
		deadLettered(w, 5)

		require.Equal(w, []string{
			"a/3 ProjectionFailed", "a/4 AggregateParked", "a/5 AggregateParked", "a/6 AggregateParked", "a/7 AggregateParked",
		}, deadLetters(w))
		require.Equal(w, []int{2, 5, 4}, []int{s.applied(w, "a"), s.applied(w, "b"), s.applied(w, "c")})
		record := parked(w, s.guards, "a")
		require.Equal(w, parkedRecord{
			MessageID: messageID(event("a", 3, "Poison")), Position: event("a", 3, "Poison").Position,
			Reason: "ProjectionFailed", Description: "no rule for it", Session: "a", Later: 4,
		}, record)
		require.Empty(w, parked(w, s.guards, "b"))
		require.Contains(w, p.Log.Text(), `"parked":1}`)
		counted := p.MustEnd()
		require.Equal(w, 11, counted.Applied)
		require.Equal(w, 5, counted.DeadLettered)
		require.Contains(w, p.Log.Text(), `"to_do":"projector parked show -- a"`)
		require.Zero(w, w.Bus.Stats(world.SubscriptionPath).Redelivered)
	})
}

// G5: the very first event of an aggregate is poison. There is no document to park, so a stub is
// created that contains nothing else.
func TestG5TheFirstEventIsPoison(t *testing.T) {
	eachShape(t, func(w *world.World, s shape) {
		p := w.StartProjector(s.settings)
		publish(w, event("a", 1, "Poison"), event("a", 2, "T"))
		deadLettered(w, 2)
		publish(w, event("a", 3, "T"))
		deadLettered(w, 3)
		p.MustEnd()
		require.Zero(w, s.applied(w, "a"))
		require.Equal(w, []string{"a/1 ProjectionFailed", "a/2 AggregateParked", "a/3 AggregateParked"}, deadLetters(w))
		require.Equal(w, event("a", 1, "T").Position, parked(w, s.guards, "a").Position)
		if s.name == "repairable" {
			doc := read(w, "timeline", "a")
			elements, err := doc.Elements()
			require.NoError(w, err)
			require.Len(w, elements, 2, "a stub holds its id and its guard")
			require.True(w, doc.Lookup("_sluice", "empty").Boolean())
		}
	})
}

// G5: the projector dies after it recorded the parking and before it dead-lettered the poison. The
// next one completes it: the poison keeps its reason, although the new code could apply it.
func TestG5CrashBetweenParkAndDeadLetter(t *testing.T) {
	eachShape(t, func(w *world.World, s shape) {
		first := w.StartProjector(s.settings)
		publish(w, event("a", 1, "T"))
		w.Completed(1)
		w.DelayMongo(1, time.Second, "update")
		publish(w, event("a", 2, "Poison"), event("a", 3, "T"))
		w.Eventually("the poison is in hand", func() bool { return w.Bus.Stats(world.SubscriptionPath).Locked > 0 })
		first.BusPlug.Stall()
		w.Eventually("the aggregate is parked", func() bool { return parked(w, s.guards, "a").Reason != "" })
		first.Kill()
		require.Zero(w, w.Bus.Stats(world.SubscriptionPath).DeadLettered)

		s.fixed.Store(true)
		second := w.StartProjector(s.settings)
		deadLettered(w, 2)
		second.MustEnd()
		require.Equal(w, []string{"a/2 ProjectionFailed", "a/3 AggregateParked"}, deadLetters(w))
		require.Equal(w, 1, s.applied(w, "a"))
		// The first projector may have counted the later event as well before it died: the count
		// includes both.
		require.GreaterOrEqual(w, parked(w, s.guards, "a").Later, 2, "each event was counted before it was set aside")
	})
}

// G5: if a projector is killed at any point of a parking, the next one completes it: the dead
// letters are complete and in order, and the other aggregate is right.
func TestG5ProjectorKilledAnywhereWhileItParks(t *testing.T) {
	for _, s := range shapes() {
		t.Run(s.name, func(t *testing.T) {
			// With 1 it passes as well, and takes half a minute.
			killedAnywhere(t, 3, 11, func(w *world.World, n int) (finished bool) {
				publish(w, event("a", 1, "T"), event("a", 2, "Poison"), event("a", 3, "T"), event("a", 4, "T"))
				publish(w, event("b", 1, "T"), event("b", 2, "T"))
				first := w.StartProjector(s.settings)
				kill := world.LayFuse(n, first.BusPlug, first.MongoPlug)
				done := func() bool {
					stats := w.Bus.Stats(world.SubscriptionPath)
					return stats.Completed == 3 && stats.DeadLettered == 3
				}
				w.Eventually("it is killed, or has finished", func() bool { return kill.HasBlown() || done() })
				finished = !kill.HasBlown()
				first.Kill()
				w.StartProjector(s.settings)
				w.Eventually("everything is settled", done)
				require.Equal(w, []string{"a/2 ProjectionFailed", "a/3 AggregateParked", "a/4 AggregateParked"}, deadLetters(w), "after %d writes", n)
				require.Equal(w, []int{1, 2}, []int{s.applied(w, "a"), s.applied(w, "b")}, "after %d writes", n)
				require.Equal(w, messageID(event("a", 2, "")), parked(w, s.guards, "a").MessageID)
				return finished
			})
		})
	}
}

// G5: a message that cannot be read parks the aggregate that it names, and none if it names none.
func TestG5UndecodableParksWhatItNames(t *testing.T) {
	eachShape(t, func(w *world.World, s shape) {
		p := w.StartProjector(s.settings)
		publish(w, event("a", 1, "T"))
		w.Completed(1)
		nameless := encode(w, event("a", 2, "T"))
		nameless.ApplicationProperties = nil
		send(w, nameless)
		deadLettered(w, 1)
		publish(w, event("a", 3, "T"))
		deadLettered(w, 2)
		require.Equal(w, parkedRecord{
			MessageID: messageID(event("a", 2, "T")), Reason: "MissingProperty", Session: "a", Later: 1,
			Description: "the message has no cloudEvents_source",
		}, parked(w, s.guards, "a"))

		stray := event("b", 1, "T")
		stray.Session = "bucket-1"
		lost := encode(w, stray)
		lost.ApplicationProperties = nil
		known := event("b", 2, "T")
		known.Session = "bucket-1"
		send(w, lost, encode(w, known))
		w.Completed(2)
		deadLettered(w, 3)
		p.MustEnd()
		require.Equal(w, 1, s.applied(w, "b"), "it is unknown whose event it was")
		require.Equal(w, 1, s.applied(w, "a"))
		require.Contains(w, p.Log.Text(), "its message names no aggregate")
	})
}

// G5: two projectors with different code apply the same events at once. The first to commit
// decides, and the other one follows: no event is ever applied behind one that was set aside.
func TestG5ProjectorsThatDisagreeAboutPoison(t *testing.T) {
	eachShape(t, func(w *world.World, s shape) {
		s.adjust = func(c *projector.Config) { c.ApplyTimeout = 5 * time.Minute }
		strict, lenient := s.settings, s.correct().settings
		// The lenient one is delayed in its write beyond its lock; the strict one parks in the
		// meantime.
		first := w.StartProjector(lenient)
		publish(w, event("a", 1, "T"))
		w.Completed(1)
		w.DelayMongo(1, 2*time.Minute, "update")
		publish(w, event("a", 2, "Poison"), event("a", 3, "T"))
		w.Eventually("the poison is in hand", func() bool { return w.Bus.Stats(world.SubscriptionPath).Locked > 0 })
		w.Pass(time.Second)
		first.BusPlug.Pull()
		second := w.StartProjector(strict)
		deadLettered(w, 2)
		w.Pass(3 * time.Minute)
		require.Equal(w, 1, s.applied(w, "a"), "an event was applied behind one that was set aside")
		first.Kill()

		// The strict one is delayed in its parking; the lenient one applies in the meantime.
		publish(w, event("b", 1, "T"))
		w.Completed(2)
		w.DelayMongo(1, 2*time.Minute, "update")
		publish(w, event("b", 2, "Poison"), event("b", 3, "T"))
		w.Eventually("the poison is in hand", func() bool { return w.Bus.Stats(world.SubscriptionPath).Locked > 0 })
		w.Pass(time.Second)
		second.BusPlug.Pull()
		third := w.StartProjector(lenient)
		w.Completed(4)
		w.Pass(3 * time.Minute)
		require.Equal(w, 3, s.applied(w, "b"))
		require.Empty(w, parked(w, s.guards, "b"), "an event that was applied parked its aggregate")
		second.Kill()
		third.MustEnd()
		require.Equal(w, []string{"a/2 ProjectionFailed", "a/3 AggregateParked"}, deadLetters(w))
	})
}
