package projector_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/tests/internal/workload"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

func source(w *world.World) *driver.Collection {
	return w.Client.Database("shop").Collection("events")
}

// inserted returns the change that inserts an event of the workload as the n-th of the stream.
func inserted(w *world.World, e workload.Event, n int) (envelope.Change, bson.Raw) {
	w.Helper()
	document, err := e.Document()
	require.NoError(w, err)
	encoded, err := bson.Marshal(document)
	require.NoError(w, err)
	raw := bson.Raw(encoded)
	body, err := bson.Marshal(bson.D{
		{Key: "operationType", Value: "insert"}, {Key: "documentKey", Value: bson.D{{Key: "_id", Value: raw.Lookup("_id")}}}, {Key: "fullDocument", Value: raw},
	})
	require.NoError(w, err)
	position := fmt.Sprintf("82%022X", n)
	return envelope.Change{
		Stream: "shop.events", Token: position, Position: position, Epoch: 1,
		Aggregate: e.AggregateID, Operation: envelope.Insert, Type: e.Type, Version: e.Version, Body: body,
	}, raw
}

// sell inserts events of the workload into the source, publishes all except the last ones, and
// waits until they are applied.
func sell(w *world.World, count, withheld int) {
	w.Helper()
	n := 0
	for e := range workload.Orders(9) {
		if n++; n > count {
			break
		}
		change, raw := inserted(w, e, n)
		_, err := source(w).InsertOne(w.Context(), raw)
		require.NoError(w, err)
		if n <= count-withheld {
			publish(w, change)
		}
	}
	w.Completed(count - withheld)
}

// Every built-in projection is recomputed and found right; then each kind of difference is found,
// and reported with its reason. A sample reads only what it compares and what feeds that; one that
// contains everything finds what a whole comparison finds.
func TestVerifyFindsEveryDifference(t *testing.T) {
	for name, collection := range map[string]string{"timeline": "timeline", "orders": "customers", "mirror": "mirror"} {
		subtest(t, name, func(w *world.World) {
			set := func(c *projector.Config, _ *projector.Options) { c.Projection = name }
			w.StartProjector(set)
			const count = 300
			sell(w, count, 0)
			right := exits(w, 0, w.OperateProjector(set, "verify"))
			require.Regexp(w, name+` against shop.events: 300 events, \d+ documents: all right`, right.Out)
			code, few, gave := verify(w, set, "--sample", "4")
			require.Equal(w, 0, code)
			require.True(w, few.Sampled)
			require.False(w, few.Scanned)
			require.GreaterOrEqual(w, few.Documents, 3)
			require.LessOrEqual(w, few.Documents, 5)
			require.Less(w, gave["source"], count/2)
			require.LessOrEqual(w, gave["read model"], 10)

			c := w.Client.Database(world.ReadModel).Collection(collection)
			var some []bson.Raw
			cursor, err := c.Find(w.Context(), bson.D{}, options.Find().SetLimit(2))
			require.NoError(w, err)
			require.NoError(w, cursor.All(w.Context(), &some))
			_, err = c.UpdateByID(w.Context(), some[0].Lookup("_id"), bson.D{{Key: "$set", Value: bson.D{{Key: "extra", Value: 1}}}})
			require.NoError(w, err)
			_, err = c.DeleteOne(w.Context(), bson.D{{Key: "_id", Value: some[1].Lookup("_id")}})
			require.NoError(w, err)
			_, err = c.InsertMany(w.Context(), []bson.D{{{Key: "_id", Value: "stranger"}}, {{Key: "_id", Value: 7}}})
			require.NoError(w, err)
			got := exits(w, 1, w.OperateProjector(set, "verify"))
			require.Empty(w, got.Err)
			require.Contains(w, got.Out, "extra is 1, expected missing\n    all its events are applied: the document is wrong")
			require.Contains(w, got.Out, "is missing")
			require.Contains(w, got.Out, collection+` "stranger": exists, but no event of the source creates it`)
			require.Contains(w, got.Out, ": 4 differ")
			_, all, _ := verify(w, set)
			code, sampled, _ := verify(w, set, "--sample", everything)
			require.Equal(w, 1, code)
			require.Equal(w, all.Findings, sampled.Findings)
			require.Equal(w, all.Documents, sampled.Documents)
		})
	}
}

// Values with the same text are shown with their types.
func TestVerifyShowsTheTypesOfValuesThatLookAlike(t *testing.T) {
	inVirtualTime(t, func(w *world.World) {
		w.StartProjector(nil)
		sell(w, 50, 0)
		c := w.Client.Database(world.ReadModel).Collection("timeline")
		var first struct {
			ID     string `bson:"_id"`
			Events int32
		}
		require.NoError(w, c.FindOne(w.Context(), bson.D{}).Decode(&first))
		for _, wrong := range []struct {
			value any
			shown string
		}{
			{fmt.Sprint(first.Events), `"%d" (string)`},
			{float64(first.Events), "%d.0 (double)"},
		} {
			_, err := c.UpdateByID(w.Context(), first.ID, bson.D{{Key: "$set", Value: bson.D{{Key: "events", Value: wrong.value}}}})
			require.NoError(w, err)
			got := exits(w, 1, w.OperateProjector(nil, "verify"))
			require.Contains(w, got.Out, fmt.Sprintf("events is "+wrong.shown+", expected %d (", first.Events, first.Events))
		}
	})
}

// An event that is in flight arrives while verify waits; one that does not arrive is distinguished
// from a wrong document.
func TestVerifyDistinguishesALagFromADifference(t *testing.T) {
	inVirtualTime(t, func(w *world.World) {
		w.StartProjector(nil)
		sell(w, 100, 1)
		code, behind, _ := verify(w, nil)
		require.Equal(w, 1, code)
		require.Equal(w, 1, behind.Differing)
		require.Len(w, behind.Findings, 1)
		require.Regexp(w, `aggregate order-\d+ is applied up to version \d+ of \d+: the rest is on its way, or lost|no event of aggregate order-\d+ has been applied`, behind.Findings[0].Why)

		// The event arrives while verify waits for it.
		verifying := make(chan world.Operated, 1)
		go func() { verifying <- w.OperateProjector(nil, "verify", "--wait", "10s") }()
		w.Pass(4 * time.Second)
		n := 0
		for e := range workload.Orders(9) {
			if n++; n == 100 {
				change, _ := inserted(w, e, n)
				publish(w, change)
				break
			}
		}
		require.Equal(w, 0, (<-verifying).Code)
	})
}

func TestVerifyComparesInParts(t *testing.T) {
	inVirtualTime(t, func(w *world.World) {
		w.StartProjector(nil)
		sell(w, 300, 0)
		whole, parts := w.OperateProjector(nil, "verify"), w.OperateProjector(nil, "verify", "--hold", "7")
		require.Equal(w, 0, parts.Code)
		require.Equal(w, whole.Out, parts.Out, "every document is in exactly one part")
		read, err := w.Client.Database(world.ReadModel).Collection("timeline").DeleteMany(w.Context(), bson.D{{Key: "events", Value: bson.D{{Key: "$gt", Value: 3}}}})
		require.NoError(w, err)
		require.Greater(w, read.DeletedCount, int64(10))
		whole, parts = w.OperateProjector(nil, "verify"), w.OperateProjector(nil, "verify", "--hold", "7")
		require.Equal(w, 1, parts.Code)
		require.Equal(w, whole.Out, parts.Out)
		require.Contains(w, parts.Out, fmt.Sprintf(": %d differ", read.DeletedCount))

		elsewhere := exits(w, 1, w.OperateProjector(func(c *projector.Config, _ *projector.Options) { c.SourceCollection = "event" }, "verify"))
		require.Contains(w, elsewhere.Out, "shop.event holds no document: check SOURCE_MONGODB_URI")
	})
}

// clockwork writes what the source does not contain.
var clockwork = keeps("clockwork", func(e projection.Event) projection.Write {
	return projection.Update("clockwork", e.Aggregate, projection.Set("at", e.Position))
})

func TestVerifyReportsDocumentsWithoutASource(t *testing.T) {
	inVirtualTime(t, func(w *world.World) {
		registry := projection.Builtin()
		require.NoError(w, registry.Register(clockwork))
		require.NoError(w, registry.Register(documents{"nowhere", clockwork.Project}))
		with := func(name string) func(*projector.Config, *projector.Options) {
			return func(c *projector.Config, o *projector.Options) { c.Projection, o.Projections = name, registry }
		}
		w.StartProjector(with("clockwork"))
		sell(w, 50, 0)
		got := exits(w, 1, w.OperateProjector(with("clockwork"), "verify"))
		require.Regexp(w, `not compared, because of what the source does not hold \(the time, position or id of a change\), which the projection writes to [a-z]+(, [a-z]+)*: \d+ document`, got.Out)
		require.Contains(w, got.Out, "50 events, 0 documents: nothing could be compared, so nothing is verified")

		refused := exits(w, 1, w.OperateProjector(with("nowhere"), "verify"))
		require.Contains(w, refused.Err, "implement projection.Stored")
	})
}

func TestVerifyWrongUsage(t *testing.T) {
	inVirtualTime(t, func(w *world.World) {
		for _, wrong := range []struct {
			want   string
			change func(*projector.Config, *projector.Options)
			args   []string
		}{
			{"SOURCE_DATABASE: is required for this command", func(c *projector.Config, _ *projector.Options) { c.SourceDatabase = "" }, []string{"verify"}},
			{"SOURCE_COLLECTION: is required for this command", func(c *projector.Config, _ *projector.Options) { c.SourceCollection = "" }, []string{"verify"}},
			{"SOURCE_MONGODB_URI: is not a MongoDB connection string", func(c *projector.Config, _ *projector.Options) { c.SourceMongoURI = "hunter2" }, []string{"verify"}},
			{"--sample -1: it is the number of documents", nil, []string{"verify", "--sample", "-1"}},
			{"--hold 0: it is the most documents", nil, []string{"verify", "--hold=0"}},
			{"--wait -1s: it is how long", nil, []string{"verify", "--wait=-1s"}},
			{`does not take "orders"`, nil, []string{"verify", "orders"}},
			{"not defined: -fast", nil, []string{"verify", "--fast"}},
		} {
			got := w.OperateProjector(wrong.change, wrong.args...)
			require.Equal(w, 2, got.Code, fmt.Sprint(wrong.args))
			require.Contains(w, got.Err, wrong.want)
			require.NotContains(w, got.Err, "hunter2")
		}
		away := w.OperateProjector(func(c *projector.Config, _ *projector.Options) {
			c.SourceMongoURI = "mongodb://user:hunter2@nowhere:27017/?replicaSet=rs0"
		}, "verify")
		require.Equal(w, 1, away.Code)
		require.NotContains(w, away.Err, "hunter2")
	})
}
