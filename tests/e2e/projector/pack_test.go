package projector_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// packOf returns events in one message of the session bucket-3.
func packOf(w *world.World, changes ...envelope.Change) *azservicebus.Message {
	w.Helper()
	var p envelope.Pack
	for _, c := range changes {
		c.Session = "bucket-3"
		added, err := p.Add(encode(w, c), 200_000)
		require.NoError(w, err)
		require.True(w, added)
	}
	return p.Message(0)
}

// alone returns an event in a message of its own, in the same session.
func alone(w *world.World, c envelope.Change) *azservicebus.Message {
	w.Helper()
	c.Session = "bucket-3"
	return encode(w, c)
}

// asides returns the events that are set aside, as deadLetters does.
func asides(w *world.World, s shape) (all []string) {
	w.Helper()
	cursor, err := w.Client.Database(world.ReadModel).Collection(s.name+"_parked").Find(w.Context(), bson.D{})
	require.NoError(w, err)
	for cursor.Next(w.Context()) {
		version, _ := cursor.Current.Lookup("properties", "version").AsInt64OK()
		all = append(all, fmt.Sprintf("%s/%d %s", cursor.Current.Lookup("_id", "aggregate").StringValue(), version, cursor.Current.Lookup("reason").StringValue()))
	}
	require.NoError(w, cursor.Err())
	return all
}

// G1, G2, G3: the events of packs are applied in order, each once, between events that come alone,
// and each pack is completed.
func TestG1G2G3PacksAreAppliedEventByEvent(t *testing.T) {
	eachShape(t, func(w *world.World, s shape) {
		s.adjust = func(c *projector.Config) { c.ReceiveBatch = 4 } // fewer than the events of a pack
		var long []envelope.Change
		for n := 5; n <= 14; n++ {
			long = append(long, event("a", n, "T"))
		}
		send(w, packOf(w, event("a", 1, "T"), event("b", 1, "T"), event("a", 2, "T"), event("a", 3, "T")), alone(w, event("a", 4, "T")),
			packOf(w, long...), packOf(w, event("b", 2, "T"), event("b", 3, "T")))
		p := w.StartProjector(s.settings)
		w.Completed(4)
		counted := p.MustEnd()
		requireRight(w, s, "a", 14)
		requireRight(w, s, "b", 3)
		require.Zero(w, counted.Duplicates)
		require.Zero(w, w.Bus.Stats(world.SubscriptionPath).Redelivered)
	})
}

// G3: events that come again in other packs, or alone, as a successor of the producer sends them,
// have no second effect.
func TestG3PartialRepeatsOfPacksHaveNoEffect(t *testing.T) {
	eachShape(t, func(w *world.World, s shape) {
		p := w.StartProjector(s.settings)
		one := func(n int) envelope.Change { return event("a", n, "T") }
		for i, m := range []*azservicebus.Message{
			packOf(w, one(1), one(2), one(3)), packOf(w, one(2), one(3), one(4)), alone(w, one(2)), packOf(w, one(1), one(2), one(3), one(4), one(5)),
		} {
			send(w, m)
			w.Completed(i + 1)
		}
		counted := p.MustEnd()
		requireRight(w, s, "a", 5)
		require.Equal(w, 7, counted.Duplicates)
	})
}

// G1, G3: a projector that ends after half of a pack leaves the pack; the next one applies the
// other half.
func TestG1G3AHalfAppliedPackIsFinished(t *testing.T) {
	eachShape(t, func(w *world.World, s shape) {
		first := w.StartProjector(s.settings)
		// b's second version is missing, so the pack is not decided.
		send(w, packOf(w, event("b", 1, "T"), event("a", 1, "T"), event("b", 3, "T"), event("a", 2, "T")))
		w.Eventually("what does not wait is applied", func() bool { return s.applied(w, "a") == 2 && s.applied(w, "b") == 1 })
		w.Pass(time.Second)
		require.Zero(w, w.Bus.Stats(world.SubscriptionPath).Completed, "the pack has an event that is not decided")
		first.Kill()
		w.Pass(world.LockDuration + time.Second)
		second := w.StartProjector(s.settings)
		send(w, alone(w, event("b", 2, "T")))
		w.Completed(2)
		second.MustEnd()
		requireRight(w, s, "a", 2)
		requireRight(w, s, "b", 3)
	})
}

// G5: a poison in a pack parks its aggregate and nothing else. No dead letter is made: the events
// of the aggregate are set aside, and a replay applies them in order with those that came alone.
func TestG5PoisonInAPackParksItsAggregate(t *testing.T) {
	eachShape(t, func(w *world.World, s shape) {
		w.StartProjector(s.settings)
		send(w, packOf(w, event("a", 1, "T"), event("b", 1, "T"), event("a", 2, "Poison"), event("b", 2, "T"), event("a", 3, "T")),
			alone(w, event("a", 4, "T")), packOf(w, event("a", 5, "T"), event("b", 3, "T")))
		w.Completed(2)
		deadLettered(w, 1)
		w.Eventually("the packs are completed", func() bool { return s.applied(w, "b") == 3 })
		require.Equal(w, 1, s.applied(w, "a"))
		require.Equal(w, []string{"a/2 ProjectionFailed", "a/3 AggregateParked", "a/5 AggregateParked"}, asides(w, s))
		require.Equal(w, []string{"a/4 AggregateParked"}, deadLetters(w))
		require.Equal(w, event("a", 2, "T").Position, parked(w, s.guards, "a").Position)
		require.Equal(w, "bucket-3", parked(w, s.guards, "a").Session)
		shown := exits(w, 0, operate(w, s, "parked", "show", "a"))
		require.Contains(w, shown.Out, "4 events")

		require.Equal(w, 1, operate(w, s, "parked", "replay", "a").Code, "the cause is not fixed")
		s.fixed.Store(true)
		require.Equal(w, 0, operate(w, s, "parked", "replay", "a").Code)
		requireRight(w, s, "a", 5)
		requireRight(w, s, "b", 3)
		require.Empty(w, asides(w, s))
		require.Empty(w, deadLetters(w))
	})
}

// G5: the event that is dropped has no effect; the others of its pack have theirs.
func TestG5ADropOfAPackedEvent(t *testing.T) {
	eachShape(t, func(w *world.World, s shape) {
		w.StartProjector(s.settings)
		send(w, packOf(w, event("a", 1, "T"), event("a", 2, "Poison"), event("b", 1, "Poison"), event("a", 3, "T"), event("b", 2, "T")))
		w.Completed(1)
		require.Equal(w, 0, operate(w, s, "parked", "drop", "a", "--yes").Code)
		require.Equal(w, 2, s.applied(w, "a"))
		require.Equal(w, []string{"b/1 ProjectionFailed", "b/2 AggregateParked"}, asides(w, s))
		s.fixed.Store(true)
		require.Equal(w, 0, operate(w, s, "parked", "replay", "--all").Code)
		requireRight(w, s, "b", 2)
		require.Empty(w, asides(w, s))
	})
}

// G1, G5: a pack in the dead-letter queue, whether the broker put it there or a version that does
// not know packs, is unpacked by a replay, and each of its aggregates gets its events. A reason of
// the projector's proves of none that it was applied.
func TestG1G5ADeadLetteredPackIsReplayedEventByEvent(t *testing.T) {
	for _, reason := range []string{"MaxDeliveryCountExceeded", "MissingProperty"} {
		eachShapeOf(t, reason, func(w *world.World, s shape) {
			send(w, packOf(w, event("a", 1, "T"), event("b", 1, "T"), event("a", 2, "T")))
			deadLetterFirst(w, "bucket-3", reason)
			require.Equal(w, 0, operate(w, s, "parked", "replay", "--all").Code)
			requireRight(w, s, "a", 2)
			requireRight(w, s, "b", 1)
			require.Empty(w, asides(w, s))
			require.Empty(w, deadLetters(w))
		})
	}
}

// G1, G5: a pack that cannot be read parks each aggregate that it lists, and no event overtakes it.
func TestG1G5AnUnreadablePackParksWhatItLists(t *testing.T) {
	eachShape(t, func(w *world.World, s shape) {
		w.StartProjector(s.settings)
		damaged := packOf(w, event("a", 1, "T"), event("b", 1, "T"))
		damaged.Body = damaged.Body[:len(damaged.Body)-1]
		send(w, damaged, packOf(w, event("a", 2, "T"), event("c", 1, "T"), event("b", 2, "T")))
		w.Completed(2)
		require.Zero(w, s.applied(w, "a"))
		require.Zero(w, s.applied(w, "b"))
		require.Equal(w, 1, s.applied(w, "c"))
		require.Equal(w, "UndecodableBody", parked(w, s.guards, "a").Reason)
		require.Equal(w, "UndecodableBody", parked(w, s.guards, "b").Reason)
		require.Equal(w, 0, operate(w, s, "parked", "drop", "a", "--yes").Code)
		require.Equal(w, 1, s.applied(w, "a"), "what follows the event is applied")
		require.Equal(w, []string{"b/0 UndecodableBody", "b/2 AggregateParked"}, asides(w, s))
	})
}

// G5: of a pack with an event that ends every projector, only the aggregate of that event is
// parked.
func TestG5OneEventUsesUpTheDeliveriesOfItsPack(t *testing.T) {
	eachShape(t, func(w *world.World, s shape) {
		var dead atomic.Bool
		settings := func(c *projector.Config, o *projector.Options) {
			runs(deadly(s.project, 2, &dead))(c, o)
			c.MaxDeliveries = maxDeliveries
		}
		p := w.StartProjector(settings)
		send(w, packOf(w, event("b", 1, "T"), event("c", 1, "T"), event("a", 1, "T"), event("a", 2, "T"), event("d", 1, "T")))
		replace(w, p, settings, &dead, func() bool { return w.Bus.Stats(world.SubscriptionPath).Completed > 0 })
		require.Equal(w, []string{"a/2 DeliveriesUsedUp"}, asides(w, s))
		for _, name := range []string{"a", "b", "c", "d"} {
			require.Equal(w, 1, s.applied(w, name), name)
		}
		require.Zero(w, w.Bus.Stats(world.SubscriptionPath).DeadLettered)
		require.Equal(w, 0, operate(w, s, "parked", "replay", "a").Code)
		requireRight(w, s, "a", 2)
	})
}

// G5: at the last delivery of a pack only its first undecided event parks its aggregate; the others
// are still applied.
func TestG5TheLastDeliveryOfAPackParksOneAggregate(t *testing.T) {
	eachShape(t, func(w *world.World, s shape) {
		send(w, packOf(w, event("a", 1, "T"), event("b", 1, "T"), event("a", 2, "T"), event("c", 1, "T")))
		loseDeliveries(w, "bucket-3", maxDeliveries-2)
		s.adjust = func(c *projector.Config) { c.MaxDeliveries = maxDeliveries }
		w.StartProjector(s.settings)
		w.Completed(1)
		require.Equal(w, []string{"a/1 DeliveriesUsedUp", "a/2 AggregateParked"}, asides(w, s))
		require.Equal(w, 1, s.applied(w, "b"))
		require.Equal(w, 1, s.applied(w, "c"))
	})
}

// G2, G5: of two streams, the events of packs and those that came alone are replayed in the order
// in which they arrived.
func TestG2G5EventsOfTwoStreamsInAndOutOfPacksAreReplayedAsTheyArrived(t *testing.T) {
	eachShape(t, func(w *world.World, s shape) {
		p := w.StartProjector(s.settings)
		send(w, alone(w, paid("a", 11, "Poison")), packOf(w, event("a", 1, "T"), event("b", 1, "T")), alone(w, paid("a", 12, "Paid")), packOf(w, event("b", 2, "T"), event("a", 2, "Shipped")))
		w.Completed(2)
		require.Len(w, asides(w, s), 2)
		deadLettered(w, 2)
		s.fixed.Store(true)
		require.Equal(w, 0, operate(w, s, "parked", "replay", "a").Code)
		require.Empty(w, asides(w, s))
		p.MustEnd()
		requireOrderOfStreams(w, s)
	})
}

// G6: what `parked drop --overtaken` shows before it does anything leaves a dead-lettered pack as
// it is; confirmed, it gives up the event of one aggregate and keeps the others of the pack.
func TestG6AnOvertakenEventOfADeadLetteredPackIsShownFirst(t *testing.T) {
	eachShape(t, func(w *world.World, s shape) {
		p := w.StartProjector(s.settings)
		send(w, alone(w, versionless("a", 1)))
		w.Completed(1)
		p.MustEnd()
		send(w, packOf(w, versionless("a", 2), versionless("b", 1)))
		loseDeliveries(w, "bucket-3", maxDeliveries)
		w.StartProjector(s.settings)
		send(w, alone(w, versionless("a", 3)), alone(w, event("a", 4, "Poison")))
		w.Completed(2)
		deadLettered(w, 2)

		require.Contains(w, operate(w, s, "parked", "drop", "--overtaken").Out, "1 event of 1 aggregate")
		require.Empty(w, asides(w, s))
		require.Equal(w, 2, w.Bus.Stats(world.SubscriptionPath).DeadLettered)
		s.fixed.Store(true)
		require.Equal(w, 0, operate(w, s, "parked", "drop", "--overtaken", "--count", "1", "--yes").Code)
		require.Equal(w, 0, operate(w, s, "parked", "replay", "--all").Code)
		require.Equal(w, 1, s.applied(w, "b"))
		require.Empty(w, asides(w, s))
		require.Empty(w, deadLetters(w))
	})
}

// G5, G6: what is set aside of an event stays when the event comes again in another pack: its
// reason is that of the parking, and its place among other events that of its first arrival.
func TestG5G6ARepeatOfAPackedEventReplacesNoCopy(t *testing.T) {
	eachShape(t, func(w *world.World, s shape) {
		send(w, packOf(w, event("a", 1, "Poison"), event("a", 2, "T")), packOf(w, event("b", 1, "T"), event("a", 1, "Poison"), event("a", 2, "T")))
		w.StartProjector(s.settings)
		w.Completed(2)
		require.Equal(w, []string{"a/1 ProjectionFailed", "a/2 AggregateParked"}, asides(w, s))
	})
}
