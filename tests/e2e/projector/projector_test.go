// Package projector_test tests the promises of the projector and of its operator's commands, in
// virtual time except for what needs a network with round trips: the read model that results from
// the messages that a test sends. No producer runs here.
package projector_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

func TestProjectorMakesATimeline(t *testing.T) {
	inVirtualTime(t, func(w *world.World) {
		p := w.StartProjector(nil)
		publish(w, event("order-1", 1, "SRM: Created"), event("order-1", 2, "Execution Syst.(v1)"), event("order-1", 3, "SRM: Created"))
		w.Completed(3)
		counted := endCleanly(w, p)
		require.Equal(w, 3, counted.Applied)
		require.Zero(w, counted.Duplicates)

		doc := w.TimelineOf("order-1")
		require.Equal(w, int64(3), doc.Events)
		require.Equal(w, map[string]int64{"SRM: Created": 2, "Execution Syst%2E(v1)": 1}, doc.Types)
		require.Equal(w, "2026-01-01T00:00:01Z", doc.First)
		require.Equal(w, "2026-01-01T00:00:03Z", doc.Last)
		require.Equal(w, "SRM: Created", doc.Type)
		require.Equal(w, int64(3), doc.Guard.Version)
	})
}

// G1: the effect is committed before the message is completed; G3: and the message that is
// delivered again has no second effect.
func TestG1G3ProjectorKilledBetweenApplyAndComplete(t *testing.T) {
	inVirtualTime(t, func(w *world.World) {
		first := w.StartProjector(nil)
		w.DelayMongo(1, time.Second, "update")
		publish(w, event("a", 1, "T"), event("a", 2, "T"), event("a", 3, "T"))
		w.Eventually("the batch is in hand", func() bool { return w.Bus.Stats(world.SubscriptionPath).Locked == 3 })
		first.BusPlug.Stall()
		w.Eventually("the effect is committed", func() bool { return w.TimelineOf("a").Events == 3 })
		require.Zero(w, w.Bus.Stats(world.SubscriptionPath).Completed)
		first.Kill()
		require.Zero(w, w.Bus.Stats(world.SubscriptionPath).Completed)

		second := w.StartProjector(nil)
		w.Completed(3)
		counted := endCleanly(w, second)
		require.Equal(w, 3, counted.Duplicates)
		require.Zero(w, counted.Applied)
		require.Equal(w, int64(3), w.TimelineOf("a").Events)
	})
}

// G1: a message whose effect is not committed is not completed, however the write ends.
func TestG1ProjectorCompletesNothingWithoutItsEffect(t *testing.T) {
	inVirtualTime(t, func(w *world.World) {
		p := w.StartProjector(nil)
		w.Completed(0)
		p.MongoPlug.Pull()
		publish(w, event("a", 1, "T"))
		w.Pass(time.Minute)
		require.Zero(w, w.Bus.Stats(world.SubscriptionPath).Completed)
		p.Kill()
		require.Equal(w, 1, w.Bus.Stats(world.SubscriptionPath).Active)
	})
}

// G2: effects are written in order, although messages arrive one by one while others are being
// applied, connections break, and messages in hand are delivered again.
func TestG2ProjectorKeepsOrderThroughRedelivery(t *testing.T) {
	const events, aggregates = 150, 3
	for seed := range uint64(5) {
		subtest(t, fmt.Sprintf("seed %d", seed), func(w *world.World) {
			random := rand.New(rand.NewPCG(seed, 1))
			positions := watch(w, "timeline")
			running := []*world.Projector{w.StartProjector(nil)}
			for n := 1; n <= events; n++ {
				for a := range aggregates {
					publish(w, event(fmt.Sprint("a", a), n, "T"))
				}
				w.Pass(time.Duration(random.IntN(6)) * time.Millisecond)
				interrupt(w, random, 40, running)
			}
			w.Completed(events * aggregates)
			endCleanly(w, running[0])
			appliedInOrder(w, positions(), aggregates, events)
		})
	}
}

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
		counted := endCleanly(w, p)
		require.Equal(w, int64(events), w.TimelineOf("hot").Events)
		require.Equal(w, events, counted.Applied)
		require.Zero(w, counted.Duplicates)
		require.Zero(w, w.Bus.Stats(world.SubscriptionPath).Redelivered, "the receiver handed messages back")
	})
}

// G3: the broker forgets a message id after its window; the guard does not.
func TestG3ProjectorRecognisesDuplicatesTheBrokerForgot(t *testing.T) {
	inVirtualTime(t, func(w *world.World) {
		p := w.StartProjector(nil)
		publish(w, event("a", 1, "T"), event("a", 2, "T"), event("a", 3, "T"))
		w.Completed(3)
		w.Pass(time.Minute)
		// A new leader starts from an old checkpoint: two events again, then a new one; then a
		// stale leader's late send.
		publish(w, event("a", 2, "T"), event("a", 3, "T"), event("a", 4, "T"))
		w.Completed(6)
		w.Pass(time.Minute)
		publish(w, event("a", 5, "T"), event("a", 1, "T"))
		w.Completed(8)
		require.Zero(w, w.Bus.Stats(world.Topic).Duplicates, "the broker was to forget")
		counted := endCleanly(w, p)
		require.Equal(w, int64(5), w.TimelineOf("a").Events)
		require.Equal(w, 5, counted.Applied)
		require.Equal(w, 3, counted.Duplicates)
	})
}

// G3: the reply to a write that took effect is lost; the write is repeated and has no second
// effect.
func TestG3ProjectorRepeatsAWriteOfUnknownOutcome(t *testing.T) {
	for _, projectionName := range []string{"timeline", "mirror"} {
		subtest(t, projectionName, func(w *world.World) {
			command := "update"
			if projectionName == "mirror" {
				command = "commitTransaction"
			}
			p := w.StartProjector(func(c *projector.Config, o *projector.Options) { c.Projection = projectionName })
			publish(w, event("a", 1, "T"))
			w.Completed(1)
			w.Mongo.LoseReplies(command, 3)
			publish(w, event("a", 2, "T"), event("a", 3, "T"))
			w.Completed(3)
			endCleanly(w, p)
			if projectionName == "timeline" {
				require.Equal(w, int64(3), w.TimelineOf("a").Events)
			} else {
				n, err := w.Client.Database(world.ReadModel).Collection("mirror").CountDocuments(w.Context(), bson.D{})
				require.NoError(w, err)
				require.Equal(w, int64(3), n)
			}
		})
	}
}

// G6: what cannot be read is set aside with a reason.
func TestG6ProjectorDeadLettersWhatItCannotRead(t *testing.T) {
	inVirtualTime(t, func(w *world.World) {
		garbage := encode(w, event("a", 2, "T"))
		garbage.Body = []byte(`{"operationType": "ins`)
		bare := &azservicebus.Message{Body: []byte("hello"), SessionID: new("b")}
		nameless := encode(w, event("c", 3, "T"))
		delete(nameless.ApplicationProperties, envelope.PropPosition)
		wrong := encode(w, event("d", 4, "T"))
		wrong.ApplicationProperties[envelope.PropEpoch] = "seven"
		text := encode(w, event("e", 5, "T"))
		text.ContentType = new("text/plain")

		p := w.StartProjector(nil)
		for i, m := range []*azservicebus.Message{garbage, bare, nameless, wrong, text} {
			send(w, m)
			deadLettered(w, i+1)
		}
		counted := endCleanly(w, p)
		require.Equal(w, 5, counted.DeadLettered)

		var reasons []string
		for _, m := range w.Bus.PeekDeadLetters(world.SubscriptionPath, 10) {
			reasons = append(reasons, m.Reason)
			require.NotEmpty(w, m.Description)
		}
		require.Equal(w, []string{
			"UndecodableBody", "MissingProperty", "MissingProperty", "InvalidProperty", "UnknownContentType",
		}, reasons)
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
			counted := endCleanly(w, p)
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
		counted := endCleanly(w, p)
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

func TestProjectorFollowsAStepDown(t *testing.T) {
	inVirtualTime(t, func(w *world.World) {
		p := w.StartProjector(nil)
		for n := 1; n <= 20; n++ {
			if n == 5 {
				w.Mongo.StepDown(15 * time.Second)
			}
			publish(w, event("a", n, "T"))
			w.Pass(500 * time.Millisecond)
		}
		w.Completed(20)
		counted := endCleanly(w, p)
		require.Zero(w, counted.Redelivered)
		require.Equal(w, int64(20), w.TimelineOf("a").Events)
		require.Zero(w, w.Bus.Stats(world.SubscriptionPath).DeadLettered)
	})
}

// A clean stop releases what is in hand, and no delivery count rises, not even after many stops.
func TestProjectorStopsCleanly(t *testing.T) {
	inVirtualTime(t, func(w *world.World) {
		publish(w, event("a", 1, "T"), event("a", 2, "T"))
		for range 10 { // more often than MaxDeliveryCount
			w.DelayMongo(1, time.Minute, "update")
			p := w.StartProjector(nil)
			w.Eventually("the batch is in hand", func() bool { return w.Bus.Stats(world.SubscriptionPath).Locked == 2 })
			p.MongoPlug.Pull()
			start := time.Now()
			endCleanly(w, p)
			require.Less(w, time.Since(start), 20*time.Second)
			require.Zero(w, w.Bus.Stats(world.SubscriptionPath).HeldSessions, "the session was not given back")
		}
		p := w.StartProjector(nil)
		w.Completed(2)
		counted := endCleanly(w, p)
		require.Zero(w, counted.Redelivered)
		require.Equal(w, 2, counted.Applied)
		require.Zero(w, w.Bus.Stats(world.SubscriptionPath).DeadLettered)
		require.Equal(w, int64(2), w.TimelineOf("a").Events)
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
		counted := endCleanly(w, second)
		require.Equal(w, 2, counted.Applied+counted.Duplicates)
	})
}

// More sessions than workers: no session waits for one that has nothing to do.
func TestProjectorSharesItsWorkers(t *testing.T) {
	inRealTime(t, time.Millisecond, func(w *world.World) {
		const aggregates, events = 40, 5
		for a := range aggregates {
			for n := 1; n <= events; n++ {
				publish(w, event(fmt.Sprint("a", a), n, "T"))
			}
		}
		start := time.Now()
		p := w.StartProjector(func(c *projector.Config, _ *projector.Options) { c.MaxSessions, c.SessionIdle = 4, 20*time.Second })
		w.Completed(aggregates * events)
		require.Less(w, time.Since(start), 5*time.Second, "sessions waited for idle ones")
		counted := endCleanly(w, p)
		require.Equal(w, aggregates*events, counted.Applied)
	})
}

// Two replicas share the sessions.
func TestProjectorsSideBySide(t *testing.T) {
	inRealTime(t, time.Millisecond, func(w *world.World) {
		const aggregates, events = 20, 10
		one, two := w.StartProjector(nil), w.StartProjector(nil)
		for n := 1; n <= events; n++ {
			for a := range aggregates {
				publish(w, event(fmt.Sprint("a", a), n, "T"))
			}
		}
		w.Completed(aggregates * events)
		a := endCleanly(w, one)
		b := endCleanly(w, two)
		require.Equal(w, aggregates*events, a.Applied+b.Applied)
		for i := range aggregates {
			require.Equal(w, int64(events), w.TimelineOf(fmt.Sprint("a", i)).Events)
		}
	})
}
