package projector_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// G5: if the first event of an aggregate can never be applied, and the rules of the database refuse
// even the stub with the record of it, nothing is dead-lettered without a record. The log describes
// what to change; then the projector continues.
func TestG5AStubThatTheDatabaseRefusesIsLoggedAndRetried(t *testing.T) {
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
		p.MustEnd()
		require.Equal(w, []string{"a/1 WriteRefused", "a/2 AggregateParked"}, deadLetters(w))
	})
}

// G3: the events that wait behind a stub are replayed one by one if the database refuses them
// together. The first one creates the document; the next ones find it, and change it.
func TestG3ReplayOnAStubOneByOne(t *testing.T) {
	inVirtualTime(t, func(w *world.World) {
		s := shapes()[0]
		p := w.StartProjector(s.settings)
		publish(w, event("a", 1, "Poison"), event("a", 2, "Touch"), event("a", 3, "T"), event("a", 4, "Bad"))
		deadLettered(w, 4)
		p.MustEnd()
		require.NoError(w, w.Client.Database(world.ReadModel).RunCommand(w.Context(), bson.D{
			{Key: "collMod", Value: "timeline"}, {Key: "validator", Value: bson.D{{Key: "types.Bad", Value: bson.D{{Key: "$exists", Value: false}}}}},
		}).Err())
		s.fixed.Store(true)
		replayed := operate(w, s, "parked", "replay", "a")
		require.Contains(w, replayed.Out, "3 events applied; it stays parked")
		doc := w.TimelineOf("a")
		require.EqualValues(w, 3, doc.Events)
		require.Equal(w, map[string]int64{"Poison": 1, "T": 1}, doc.Types)
		require.Equal(w, "2026-01-01T00:00:01Z", doc.First)
	})
}

// growing appends the data of each event to its aggregate's one document.
var growing = keeps("growing", func(e projection.Event) projection.Write {
	size := e.Document().Lookup("data", "size").AsInt64()
	return projection.Update("growing", e.Aggregate, projection.Set(projection.EscapeKey(e.Type), strings.Repeat("x", int(size))))
})

// G5: a full document has no room for the record that parks its aggregate. Only the aggregate
// waits: neither the neighbours of its session nor those that need its worker. Once there is room,
// it is parked.
func TestG5AFullDocumentHoldsUpItsAggregateAlone(t *testing.T) {
	size := func(n int) bson.D { return bson.D{{Key: "size", Value: n}} }
	for _, key := range []envelope.SessionKey{{}, envelope.Buckets(1)} {
		subtest(t, key.String(), func(w *world.World) {
			put := func(aggregate string, n int, eventType string, bytes int) {
				publish(w, inSessions(key, eventWithData(aggregate, n, eventType, size(bytes)))...)
			}
			p := w.StartProjector(func(c *projector.Config, o *projector.Options) {
				runs(growing)(c, o)
				c.MaxSessions, c.Connections, c.ReceiveBatch = 2, 1, 10
			})
			for _, name := range []string{"full1", "full2"} {
				put(name, 1, "Big", 16<<20-300)
			}
			w.Completed(2)
			for _, name := range []string{"full1", "full2"} {
				put(name, 2, "Small", 200)
			}
			w.Pass(10 * time.Second)
			for n := 1; n <= 5; n++ {
				began := time.Now()
				put("healthy", n, "T", n)
				w.Completed(2 + n)
				require.Less(w, time.Since(began), 5*time.Second)
				w.Pass(20 * time.Second)
			}
			require.Contains(w, p.Log.Text(), "has no room for the record that parks it")
			require.Zero(w, w.Bus.Stats(world.SubscriptionPath).Redelivered)
			for _, name := range []string{"full1", "full2"} {
				_, err := w.Client.Database(world.ReadModel).Collection("growing").UpdateByID(w.Context(), name, bson.D{{Key: "$unset", Value: bson.D{{Key: "Big", Value: ""}}}})
				require.NoError(w, err)
			}
			decided(w, 9)
		})
	}
}
