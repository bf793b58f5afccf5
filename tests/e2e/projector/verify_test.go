package projector_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/tests/internal/workload"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

func source(w *world.World) *driver.Collection {
	return w.Client.Database("shop").Collection("events")
}

// sell inserts events of the workload into the source and publishes them, all except the last ones.
func sell(w *world.World, count, withheld int) {
	w.Helper()
	n := 0
	for e := range workload.Orders(9) {
		if n++; n > count {
			return
		}
		change, raw := inserted(w, e, n)
		_, err := source(w).InsertOne(w.Context(), raw)
		require.NoError(w, err)
		if n <= count-withheld {
			publish(w, change)
		}
	}
}

// Every built-in projection is recomputed and found right; then each kind of difference is found,
// and reported with its reason.
func TestVerifyFindsEveryDifference(t *testing.T) {
	for name, collection := range map[string]string{"timeline": "timeline", "orders": "customers", "mirror": "mirror"} {
		subtest(t, name, func(w *world.World) {
			set := func(c *projector.Config, _ *projector.Options) { c.Projection = name }
			w.StartProjector(set)
			const count = 300
			sell(w, count, 0)
			w.Completed(count)
			right := w.OperateProjector(set, "verify")
			require.Equal(w, 0, right.Code)
			require.Regexp(w, name+` against shop.events: 300 events, \d+ documents: all right`, right.Out)

			c := w.Client.Database(world.ReadModel).Collection(collection)
			var some []bson.Raw
			cursor, err := c.Find(w.Context(), bson.D{}, options.Find().SetLimit(3))
			require.NoError(w, err)
			require.NoError(w, cursor.All(w.Context(), &some))
			id := func(i int) bson.RawValue { return some[i].Lookup("_id") }
			_, err = c.UpdateByID(w.Context(), id(0), bson.D{{Key: "$set", Value: bson.D{{Key: "extra", Value: 1}}}})
			require.NoError(w, err)
			_, err = c.DeleteOne(w.Context(), bson.D{{Key: "_id", Value: id(1)}})
			require.NoError(w, err)
			_, err = c.InsertOne(w.Context(), bson.D{{Key: "_id", Value: "stranger"}})
			require.NoError(w, err)
			got := w.OperateProjector(set, "verify")
			require.Equal(w, 1, got.Code)
			require.Empty(w, got.Err)
			require.Contains(w, got.Out, "extra is 1, expected missing\n    all its events are applied: the document is wrong")
			require.Contains(w, got.Out, "is missing")
			require.Contains(w, got.Out, collection+` "stranger": exists, but no event of the source creates it`)
			require.Contains(w, got.Out, ": 3 differ")
		})
	}
}

// Values with the same text are shown with their types.
func TestVerifyShowsTheTypesOfValuesThatLookAlike(t *testing.T) {
	inVirtualTime(t, func(w *world.World) {
		w.StartProjector(nil)
		const count = 50
		sell(w, count, 0)
		w.Completed(count)
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
			got := w.OperateProjector(nil, "verify")
			require.Equal(w, 1, got.Code)
			require.Contains(w, got.Out, fmt.Sprintf("events is "+wrong.shown+", expected %d (", first.Events, first.Events))
		}
	})
}

// An event that is in flight arrives while verify waits; one that does not arrive is distinguished
// from a wrong document.
func TestVerifyTellsALagFromADifference(t *testing.T) {
	inVirtualTime(t, func(w *world.World) {
		w.StartProjector(nil)
		sell(w, 100, 1)
		w.Completed(99)
		var behind struct {
			Differing int
			Findings  []struct {
				Collection, ID, Why string
				Differences         []string
			}
		}
		got := w.OperateProjector(nil, "verify", "--json")
		require.Equal(w, 1, got.Code)
		require.NoError(w, json.Unmarshal([]byte(got.Out), &behind))
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
		w.Completed(300)
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

		elsewhere := w.OperateProjector(func(c *projector.Config, _ *projector.Options) { c.SourceCollection = "event" }, "verify")
		require.Equal(w, 1, elsewhere.Code)
		require.Contains(w, elsewhere.Out, "shop.event holds no document: check SOURCE_MONGODB_URI")
	})
}

// clockwork writes what the source does not contain.
type clockwork struct{ projection.Timeline }

func (clockwork) Name() string       { return "clockwork" }
func (clockwork) Collection() string { return "clockwork" }
func (clockwork) Project(e projection.Event) ([]projection.Write, error) {
	return []projection.Write{projection.Update("clockwork", e.Aggregate, projection.Set("at", e.Position))}, nil
}

type homeless struct{ clockwork }

func (homeless) Name() string { return "homeless" }

// nowhere is a projection that does not declare its collections.
type nowhere struct{ p homeless }

func (n nowhere) Name() string { return "nowhere" }
func (n nowhere) Project(e projection.Event) ([]projection.Write, error) {
	return n.p.Project(e)
}

func TestVerifySaysWhatItCannotKnow(t *testing.T) {
	inVirtualTime(t, func(w *world.World) {
		registry := projection.Builtin()
		require.NoError(w, registry.Register(clockwork{}))
		require.NoError(w, registry.Register(nowhere{}))
		with := func(name string) func(*projector.Config, *projector.Options) {
			return func(c *projector.Config, o *projector.Options) { c.Projection, o.Projections = name, registry }
		}
		w.StartProjector(with("clockwork"))
		sell(w, 50, 0)
		w.Completed(50)
		got := w.OperateProjector(with("clockwork"), "verify")
		require.Equal(w, 1, got.Code)
		require.Regexp(w, `not compared, because of what the source does not hold \(the time, position or id of a change\), which the projection writes to [a-z]+(, [a-z]+)*: \d+ document`, got.Out)
		require.Contains(w, got.Out, "50 events, 0 documents: nothing could be compared, so nothing is verified")

		refused := w.OperateProjector(with("nowhere"), "verify")
		require.Equal(w, 1, refused.Code)
		require.Contains(w, refused.Err, "implement projection.Stored")
	})
}

func TestVerifyWrongUsage(t *testing.T) {
	inVirtualTime(t, func(w *world.World) {
		for _, wrong := range []struct {
			says   string
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
			require.Contains(w, got.Err, wrong.says)
			require.NotContains(w, got.Err, "hunter2")
		}
		away := w.OperateProjector(func(c *projector.Config, _ *projector.Options) {
			c.SourceMongoURI = "mongodb://user:hunter2@nowhere:27017/?replicaSet=rs0"
		}, "verify")
		require.Equal(w, 1, away.Code)
		require.NotContains(w, away.Err, "hunter2")
	})
}
