// Package projector_test tests the promises of the projector and of its operator's commands, in
// virtual time except for what needs a network with round trips: the read model that results from
// the messages that a test sends. No producer runs here.
package projector_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// G2: an event that arrives while the one before it is being handled is not overtaken by the one
// after it. The SDK releases what arrives between two receives, and it is delivered again behind
// later ones.
func TestG2ProjectorIsNotOvertakenBetweenReceives(t *testing.T) {
	inRealTime(t, 10*time.Millisecond, func(w *world.World) {
		p := w.StartProjector(func(c *projector.Config, _ *projector.Options) { c.MaxSessions = 2 })
		const events = 400
		for n := 1; n <= events; n++ {
			publish(w, event("hot", n, "T"))
			w.Pass(3 * time.Millisecond)
		}
		w.Completed(events)
		counted := p.MustEnd()
		require.Equal(w, int64(events), w.TimelineOf("hot").Events)
		require.Equal(w, events, counted.Applied)
		require.Zero(w, counted.Duplicates)
		require.Zero(w, w.Bus.Stats(world.SubscriptionPath).Redelivered, "the receiver handed messages back")
	})
}

// picky is a timeline that refuses some events.
type picky struct{ projection.Timeline }

func (picky) Name() string { return "picky" }

func (p picky) Project(e projection.Event) ([]projection.Write, error) {
	switch e.Type {
	case "Refused":
		return nil, projection.Permanent(errors.New("bad events are not wanted"))
	case "Panics":
		panic("no")
	case "Note":
		return []projection.Write{projection.Update("timeline", e.Aggregate, projection.Set("note", "a string"))}, nil
	case "NotViable":
		// The server refuses it: note is a string and holds no fields.
		return []projection.Write{projection.Update("timeline", e.Aggregate, projection.Set("note.author", "me"))}, nil
	case "Astray":
		return []projection.Write{projection.Update("elsewhere", e.Aggregate, projection.Set("note", 1))}, nil
	}
	return p.Timeline.Project(e)
}

// G6: an event that can never be applied is set aside alone, and none of those that go into the
// same update.
func TestG6ProjectorFindsThePoisonInABatch(t *testing.T) {
	for eventType, reason := range map[string]string{
		"Refused": "ProjectionFailed", "Panics": "ProjectionFailed", "Astray": "ProjectionInvalid", "NotViable": "WriteRefused",
	} {
		subtest(t, eventType, func(w *world.World) {
			p := w.StartProjector(runs(picky{}))
			publish(w, event("a", 1, "Note"))
			w.Completed(1)
			// All of these come in one batch, and those without a mistake of the projection's
			// would fold into one update.
			w.DelayMongo(1, time.Second, "update")
			publish(w, event("a", 2, "T"))
			w.Eventually("the first is in hand", func() bool { return w.Bus.Stats(world.SubscriptionPath).Locked == 1 })
			publish(w, event("a", 3, "T"), event("a", 4, "T"), event("a", 5, eventType), event("a", 6, "T"))
			publish(w, event("b", 1, "T"))
			w.Completed(5)
			deadLettered(w, 2)
			counted := p.MustEnd()
			require.Equal(w, 5, counted.Applied)
			require.Equal(w, 2, counted.DeadLettered)
			require.Equal(w, int64(3), w.TimelineOf("a").Events)
			require.Equal(w, int64(4), w.TimelineOf("a").Guard.Version)
			require.Equal(w, int64(1), w.TimelineOf("b").Events)
			require.Equal(w, []string{"a/5 " + reason, "a/6 AggregateParked"}, deadLetters(w))
			// The stack of a panic is logged once, and of nothing else.
			where := 0
			if eventType == "Panics" {
				where = 1
			}
			require.Equal(w, where, strings.Count(p.Log.Text(), `"stack":"github.com/sluice-cdc/sluice/tests/e2e/projector_test.picky.Project(`), p.Log.Text())
		})
	}
}

// The database is unavailable for hours, with a batch in hand: nothing is parked or dead-lettered,
// no delivery count rises, nothing is lost.
func TestG1G5ProjectorWaitsForTheDatabase(t *testing.T) {
	inVirtualTime(t, func(w *world.World) {
		p := w.StartProjector(nil)
		publish(w, event("a", 1, "T"))
		w.Completed(1)
		p.MongoPlug.Pull()
		publish(w, event("a", 2, "T"), event("a", 3, "T"))
		publish(w, event("b", 1, "T"))
		w.Pass(6 * time.Hour)
		require.Equal(w, 1, w.Bus.Stats(world.SubscriptionPath).Completed)
		p.MongoPlug.PlugIn()
		w.Completed(4)
		counted := p.MustEnd()
		require.Zero(w, counted.Redelivered)
		require.Zero(w, counted.Duplicates)
		require.Zero(w, w.Bus.Stats(world.SubscriptionPath).Redelivered)
		require.NotContains(w, p.Log.Text(), "session released after an error", "the session was not kept")
		require.Zero(w, w.Bus.Stats(world.SubscriptionPath).DeadLettered)
		require.Equal(w, int64(3), w.TimelineOf("a").Events)
		require.Equal(w, int64(1), w.TimelineOf("b").Events)
		require.Empty(w, parked(w, "timeline", "a"))
	})
}

// G4: a projector that lost its lock without noticing does no harm.
func TestG4ProjectorWithoutItsLockDoesNoHarm(t *testing.T) {
	inVirtualTime(t, func(w *world.World) {
		first := w.StartProjector(func(c *projector.Config, _ *projector.Options) { c.ApplyTimeout = 5 * time.Minute })
		publish(w, event("a", 1, "T"))
		w.Completed(1)
		// Its next write is delayed beyond the lock, and it cannot reach the broker to renew it.
		w.DelayMongo(1, 2*time.Minute, "update")
		publish(w, event("a", 2, "T"), event("a", 3, "T"))
		w.Eventually("the batch is in hand", func() bool { return w.Bus.Stats(world.SubscriptionPath).Locked > 0 })
		w.Pass(time.Second)
		first.BusPlug.Pull()
		pulled := time.Now()
		w.Eventually("the handler is cancelled", func() bool { return strings.Contains(first.Log.Text(), "session lock lost") })
		require.LessOrEqual(w, time.Since(pulled), world.LockDuration+time.Second)
		second := w.StartProjector(nil)
		w.Completed(3)
		w.Pass(3 * time.Minute)
		require.Equal(w, int64(3), w.TimelineOf("a").Events)
		first.Kill()
		counted := second.MustEnd()
		require.Equal(w, 2, counted.Applied+counted.Duplicates)
	})
}

// More sessions than workers: no session waits for one that has nothing to do.
func TestProjectorSharesItsWorkers(t *testing.T) {
	inRealTime(t, time.Millisecond, func(w *world.World) {
		const aggregates, events = 40, 5
		publish(w, rounds(aggregates, 1, events)...)
		start := time.Now()
		p := w.StartProjector(func(c *projector.Config, _ *projector.Options) { c.MaxSessions, c.SessionIdle = 4, 20*time.Second })
		w.Completed(aggregates * events)
		require.Less(w, time.Since(start), 5*time.Second, "sessions waited for idle ones")
		counted := p.MustEnd()
		require.Equal(w, aggregates*events, counted.Applied)
	})
}
