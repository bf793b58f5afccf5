package projector_test

import (
	"testing"

	"github.com/sluice-cdc/sluice/tests/internal/world"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// G5: where the first event of an aggregate can never be applied, and the database's own rules refuse even the stub that is
// to hold the record of it, nothing is dead-lettered without one. The log says what to change; then it goes on by itself.
func TestG5AStubThatTheDatabaseRefusesIsToldAndWaitedFor(t *testing.T) {
	inVirtualTime(t, func(w *world.World) {
		database := w.Client.Database(world.ReadModel)
		exists := func(is bool) bson.D { return bson.D{{Key: "$exists", Value: is}} }
		sane := bson.D{{Key: "events", Value: exists(true)}, {Key: "types.Bad", Value: exists(false)}}
		require.NoError(w, database.CreateCollection(w.Context(), "timeline", options.CreateCollection().SetValidator(sane)))
		p := w.StartProjector(nil)
		publish(w, event("a", 1, "Bad"), event("a", 2, "T"))
		publish(w, event("b", 1, "T"))
		w.Completed(1)
		w.Pass(world.LockDuration * 3)
		require.Zero(w, w.Bus.Stats(world.SubscriptionPath).DeadLettered)
		require.Zero(w, w.Bus.Stats(world.SubscriptionPath).Redelivered)
		require.Equal(w, 1, int(w.TimelineOf("b").Events))
		require.Contains(w, p.Log.Text(), "_sluice.empty")

		require.NoError(w, database.RunCommand(w.Context(), bson.D{
			{Key: "collMod", Value: "timeline"},
			{Key: "validator", Value: bson.D{{Key: "$or", Value: bson.A{sane, bson.D{{Key: "_sluice.empty", Value: true}}}}}},
		}).Err())
		deadLettered(w, 2)
		_, err := p.End()
		require.NoError(w, err)
		require.Equal(w, []string{"a/1 WriteRefused", "a/2 AggregateParked"}, deadLetters(w))
	})
}

// G3: the events that wait behind a stub are replayed one by one where the database refuses them together. The first makes the
// document; the next find it there, and do to it what they do to one.
func TestG3ReplayOnAStubOneByOne(t *testing.T) {
	inVirtualTime(t, func(w *world.World) {
		s := shapes()[0]
		p := w.StartProjector(s.settings(nil))
		publish(w, event("a", 1, "Poison"), event("a", 2, "Touch"), event("a", 3, "T"), event("a", 4, "Bad"))
		deadLettered(w, 4)
		_, err := p.End()
		require.NoError(w, err)
		require.NoError(w, w.Client.Database(world.ReadModel).RunCommand(w.Context(), bson.D{
			{Key: "collMod", Value: "timeline"}, {Key: "validator", Value: bson.D{{Key: "types.Bad", Value: bson.D{{Key: "$exists", Value: false}}}}},
		}).Err())
		s.mended.Store(true)
		replayed := operate(w, s, "parked", "replay", "a")
		require.Contains(w, replayed.Out, "3 events applied; it stays parked")
		doc := w.TimelineOf("a")
		require.EqualValues(w, 3, doc.Events)
		require.Equal(w, map[string]int64{"Poison": 1, "T": 1}, doc.Types)
		require.Equal(w, "2026-01-01T00:00:01Z", doc.First)
	})
}
