package projector_test

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	driverevent "go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/tests/internal/workload"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// everything is a sample so large that it contains every document.
const everything = "5000"

type verified struct {
	Documents, Differing, Poison int
	Sampled, Scanned             bool
	Findings                     []struct {
		Collection, ID, Why string
		Differences         []string
	}
}

// verify runs the command and counts the documents that the server gave it of each collection.
func verify(w *world.World, set func(*projector.Config, *projector.Options), args ...string) (code int, v verified, gave map[string]int) {
	w.Helper()
	var source, model atomic.Int64
	monitor := &driverevent.CommandMonitor{Succeeded: func(_ context.Context, e *driverevent.CommandSucceededEvent) {
		cursor, ok := e.Reply.Lookup("cursor").DocumentOK()
		if !ok {
			return
		}
		count := &model
		if cursor.Lookup("ns").StringValue() == "shop.events" {
			count = &source
		}
		for _, batch := range []string{"firstBatch", "nextBatch"} {
			if list, ok := cursor.Lookup(batch).ArrayOK(); ok {
				documents, err := list.Values()
				require.NoError(w, err)
				count.Add(int64(len(documents)))
			}
		}
	}}
	got := w.OperateProjector(monitored(set, monitor), append([]string{"verify", "--json"}, args...)...)
	require.NoError(w, json.Unmarshal([]byte(got.Out), &v), got.Err)
	return got.Code, v, map[string]int{"source": int(source.Load()), "read model": int(model.Load())}
}

// A sample reads only what it compares and what feeds that; one that contains everything finds what
// a whole comparison finds, in both directions.
func TestVerifySampleReadsWhatItCompares(t *testing.T) {
	for name, collection := range map[string]string{"timeline": "timeline", "orders": "customers", "mirror": "mirror"} {
		subtest(t, name, func(w *world.World) {
			set := func(c *projector.Config, _ *projector.Options) { c.Projection = name }
			w.StartProjector(set)
			const count = 300
			sell(w, count, 0)
			w.Completed(count)
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
			code, all, _ := verify(w, set)
			require.Equal(w, 1, code)
			require.Equal(w, 4, all.Differing)
			code, sampled, _ := verify(w, set, "--sample", everything)
			require.Equal(w, 1, code)
			require.Equal(w, all.Findings, sampled.Findings)
			require.Equal(w, all.Documents, sampled.Documents)
		})
	}
}

// Events behind a poison event are correctly missing, although the sample contains nothing that the
// event writes to.
func TestVerifySampleSeesWhatIsParked(t *testing.T) {
	inVirtualTime(t, func(w *world.World) {
		set := func(c *projector.Config, _ *projector.Options) { c.Projection, c.MirrorKey = "mirror", "data.sku" }
		w.StartProjector(set)
		for n, data := range []string{`{"sku": 1}`, `{"none": 2}`, `{"sku": 3}`} {
			change, document := inserted(w, workload.Event{
				AggregateID: "a", Version: int64(n + 1), Type: "T", OccurredAt: "2026-01-01T00:00:00Z", Data: json.RawMessage(data),
			}, n+1)
			_, err := source(w).InsertOne(w.Context(), document)
			require.NoError(w, err)
			publish(w, change)
		}
		deadLettered(w, 2)
		for _, args := range [][]string{nil, {"--sample", everything}} {
			code, got, _ := verify(w, set, args...)
			require.Equal(w, 0, code)
			require.Equal(w, []int{1, 1}, []int{got.Documents, got.Poison})
		}
	})
}

// keyed is a user's projection whose documents are keyed by the event's type.
type keyed struct{ by string }

func (keyed) Name() string { return "keyed" }
func (k keyed) Collections() []projection.Collection {
	return []projection.Collection{{Name: "keyed", KeyedBy: k.by}}
}

func (keyed) Project(e projection.Event) ([]projection.Write, error) {
	return []projection.Write{projection.Update("keyed", e.Type, projection.Inc("n", 1))}, nil
}

// If a projection does not declare what its documents are keyed by, a sample reads the whole source
// and is right; if the declaration is wrong, that is reported.
func TestVerifySampleGoesByTheKey(t *testing.T) {
	inVirtualTime(t, func(w *world.World) {
		by := func(key string) func(*projector.Config, *projector.Options) {
			registry := projection.Builtin()
			require.NoError(w, registry.Register(keyed{key}))
			return func(c *projector.Config, o *projector.Options) { c.Projection, o.Projections = "keyed", registry }
		}
		w.StartProjector(by("type"))
		sell(w, 100, 0)
		w.Completed(100)
		code, right, _ := verify(w, by("type"), "--sample", "3")
		require.Equal(w, 0, code)
		require.False(w, right.Scanned)

		code, unknown, _ := verify(w, by(""), "--sample", "3")
		require.Equal(w, 0, code)
		require.True(w, unknown.Scanned)
		require.Contains(w, w.OperateProjector(by(""), "verify", "--sample", "3").Out,
			"keyed does not declare what its documents are keyed by (KeyedBy of projection.Collection), so the whole source was read")

		for _, wrong := range []string{projection.ByAggregate, "data.customerId", "nowhere"} {
			got := w.OperateProjector(by(wrong), "verify", "--sample", everything)
			require.Equal(w, 1, got.Code)
			require.Contains(w, got.Err, "correct that key, or leave it out: verify then reads the whole source")
		}
	})
}
