package projector_test

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	driverevent "go.mongodb.org/mongo-driver/v2/event"

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
func TestVerifySampleUsesTheKey(t *testing.T) {
	inVirtualTime(t, func(w *world.World) {
		by := func(key string) func(*projector.Config, *projector.Options) {
			registry := projection.Builtin()
			require.NoError(w, registry.Register(keyed{key}))
			return func(c *projector.Config, o *projector.Options) { c.Projection, o.Projections = "keyed", registry }
		}
		w.StartProjector(by("type"))
		sell(w, 100, 0)
		code, right, _ := verify(w, by("type"), "--sample", "3")
		require.Equal(w, 0, code)
		require.False(w, right.Scanned)

		code, unknown, _ := verify(w, by(""), "--sample", "3")
		require.Equal(w, 0, code)
		require.True(w, unknown.Scanned)
		require.Contains(w, w.OperateProjector(by(""), "verify", "--sample", "3").Out,
			"keyed does not declare what its documents are keyed by (KeyedBy of projection.Collection), so the whole source was read")

		for _, wrong := range []string{projection.ByAggregate, "data.customerId", "nowhere"} {
			got := exits(w, 1, w.OperateProjector(by(wrong), "verify", "--sample", everything))
			require.Contains(w, got.Err, "correct that key, or leave it out: verify then reads the whole source")
		}
	})
}
