package projector_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// of makes a change one of another stream; its number counts positions and versions there.
func of(stream string, c envelope.Change) envelope.Change {
	c.Stream = stream
	return c
}

// paid returns an event of a second stream, which has a document of its own.
func paid(aggregate string, n int, eventType string) envelope.Change {
	c := event(aggregate+"/paid", n, eventType)
	c.Aggregate, c.Token = aggregate, c.Position+aggregate
	return of("shop.payments", c)
}

// G1, G3: two streams that feed one aggregate do not treat each other's events as applied,
// whichever is ahead; and each of them recognises its own.
func TestG1G3StreamsDoNotShareAGuard(t *testing.T) {
	eachShape(t, func(w *world.World, s shape) {
		p := w.StartProjector(s.settings)
		publish(w, paid("a", 11, "Paid"))
		w.Completed(1)
		publish(w, event("a", 1, "T"), event("a", 2, "T"), paid("a", 12, "Paid"))
		publish(w, paid("b", 1, "Paid"), event("b", 1, "T"), paid("b", 2, "Paid"), event("b", 2, "T"))
		w.Completed(8)
		w.Pass(time.Minute) // the broker forgets the message ids
		publish(w, event("a", 2, "T"), paid("a", 12, "Paid"), event("a", 1, "T"), paid("a", 11, "Paid"), event("a", 3, "T"), paid("a", 13, "Paid"))
		w.Completed(14)
		end := p.MustEnd()
		require.Equal(w, 10, end.Applied)
		require.Equal(w, 4, end.Duplicates)
		total := s.applied(w, "a")
		if s.name == "ledger" { // whose lines distinguish the streams
			total += s.applied(w, "a/paid")
		}
		require.Equal(w, 6, total)
		stands := guard(w, s.guards, "a")
		require.Equal(w, "shop.payments", stands.Lookup("stream").StringValue(), "the first that came")
		require.Equal(w, event("a", 3, "").Position, stands.Lookup("streams", "shop%2Eevents", "position").StringValue())
		require.EqualValues(w, 1, stands.Lookup("streams", "shop%2Eevents", "first").AsInt64())
	})
}

// G2: the events of two streams are applied in the order in which they arrive, also in one batch:
// the last one applied is the last one that arrived.
func TestG2TwoStreamsEventsAreAppliedAsTheyArrive(t *testing.T) {
	inVirtualTime(t, func(w *world.World) {
		publish(w, event("a", 1, "Ordered"), paid("a", 11, "Paid"), event("a", 2, "Shipped"))
		publish(w, paid("b", 1, "Paid"), event("b", 1, "Ordered"), event("b", 2, "Shipped"), paid("b", 2, "Refunded"))
		p := w.StartProjector(nil)
		w.Completed(7)
		require.Equal(w, "Shipped", w.TimelineOf("a").Type)
		require.Equal(w, "Refunded", w.TimelineOf("b").Type)
		end := p.MustEnd()
		require.Equal(w, 7, end.Applied)
	})
}

// requireOrderOfStreams requires that the events of two streams of a were applied alternately.
func requireOrderOfStreams(w *world.World, s shape) {
	w.Helper()
	if s.name == "repairable" {
		require.Equal(w, "Shipped", w.TimelineOf("a").Type)
		return
	}
	cursor, err := w.Client.Database(world.ReadModel).Collection("lines").Find(w.Context(), bson.D{{Key: "_id", Value: bson.D{{Key: "$regex", Value: "^a/"}}}})
	require.NoError(w, err)
	var lines []struct {
		ID string `bson:"_id"`
	}
	require.NoError(w, cursor.All(w.Context(), &lines))
	require.Equal(w, "[{a/paid/11} {a/1} {a/paid/12} {a/2}]", fmt.Sprint(lines))
}

// G5: a version that one stream leaves out is missed, however far the other one is; and the parking
// of one stops both, until it is replayed.
func TestG5AStreamsPoisonStopsItsAggregateInBoth(t *testing.T) {
	eachShape(t, func(w *world.World, s shape) {
		w.StartProjector(s.settings)
		publish(w, event("a", 1, "T"), paid("a", 7, "T"), paid("a", 8, "T"))
		w.Completed(3)
		publish(w, event("a", 3, "T"), paid("a", 9, "T"))
		w.Completed(4)
		deadLettered(w, 1)
		publish(w, paid("a", 10, "T"), event("a", 2, "T"), paid("a", 11, "T"))
		deadLettered(w, 4)
		require.Equal(w, "a/3 VersionGap", deadLetters(w)[0])
		require.Equal(w, 0, operate(w, s, "parked", "replay", "a").Code)
		require.Empty(w, deadLetters(w))
		require.Empty(w, parked(w, s.guards, "a"))
		stands := guard(w, s.guards, "a")
		require.Equal(w, event("a", 3, "").Position, stands.Lookup("position").StringValue())
		require.Equal(w, event("a", 11, "").Position, stands.Lookup("streams", "shop%2Epayments", "position").StringValue())

		publish(w, paid("a", 12, "Poison"), event("a", 4, "T"))
		deadLettered(w, 2)
		require.Equal(w, []string{"a/12 ProjectionFailed", "a/4 AggregateParked"}, deadLetters(w))
		s.fixed.Store(true)
		require.Equal(w, 0, operate(w, s, "parked", "replay", "a").Code)
		require.Empty(w, deadLetters(w))
		require.Equal(w, event("a", 4, "").Position, guard(w, s.guards, "a").Lookup("position").StringValue())
	})
}

// G3: a guard that an earlier version made names no stream, and belongs to the first stream that
// comes; the other one begins its own.
func TestG3AGuardThatNamesNoStreamBelongsToTheFirstThatComes(t *testing.T) {
	eachShape(t, func(w *world.World, s shape) {
		old := bson.D{{Key: "position", Value: event("a", 5, "").Position}, {Key: "epoch", Value: int64(1)}, {Key: "version", Value: int64(5)}}
		document := append(bson.D{{Key: "_id", Value: "a"}}, old...)
		if s.name == "repairable" {
			document = bson.D{{Key: "_id", Value: "a"}, {Key: "events", Value: int64(5)}, {Key: projection.GuardField, Value: old}}
		}
		_, err := w.Client.Database(world.ReadModel).Collection(s.guards).InsertOne(w.Context(), document)
		require.NoError(w, err)
		p := w.StartProjector(s.settings)
		publish(w, event("a", 4, "T"), event("a", 5, "T"), event("a", 6, "T"))
		w.Completed(3)
		publish(w, paid("a", 1, "T"), paid("a", 2, "T"))
		w.Completed(5)
		end := p.MustEnd()
		require.Equal(w, 3, end.Applied)
		require.Equal(w, 2, end.Duplicates)
		stands := guard(w, s.guards, "a")
		require.Equal(w, "shop.events", stands.Lookup("stream").StringValue())
		require.Equal(w, event("a", 6, "").Position, stands.Lookup("position").StringValue())
		require.Zero(w, stands.Lookup("first").Type, "it is unknown where its count began")
		require.Equal(w, event("a", 2, "").Position, stands.Lookup("streams", "shop%2Epayments", "position").StringValue())
	})
}

// G3: a document that is replaced keeps the guards of both streams.
func TestG3AReplacementKeepsTheGuardsOfAllStreams(t *testing.T) {
	inVirtualTime(t, func(w *world.World) {
		p := w.StartProjector(runs(latest))
		count := 0
		for n := 1; n <= 3; n++ {
			versioned, unversioned := paid("a", 10*n, "T"), paid("a", 10*n+1, "T")
			versioned.Version, unversioned.Version = int64(n), 0
			for _, c := range []envelope.Change{event("a", n, "T"), versioned, unversioned} {
				publish(w, c)
				count++
				w.Completed(count)
			}
			if n == 1 {
				p.MustEnd()
				p = w.StartProjector(runs(latest))
			}
		}
		end := p.MustEnd()
		require.Zero(w, end.Duplicates, fmt.Sprint(guard(w, "latest", "a")))
		stands := guard(w, "latest", "a")
		require.Equal(w, event("a", 3, "").Position, stands.Lookup("position").StringValue())
		require.EqualValues(w, 3, stands.Lookup("version").AsInt64())
		require.Equal(w, event("a", 31, "").Position, stands.Lookup("streams", "shop%2Epayments", "position").StringValue())
	})
}
