package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/internal/world"
)

func over(w *world.World, rate float64, aggregates int, d time.Duration) Load {
	return Load{
		Source: w.Events, ReadModel: w.Client.Database(world.ReadModel).Collection("timeline"),
		Rate: rate, Aggregates: aggregates, Size: 300, For: d, Patience: time.Minute,
	}
}

// The report matches the request: the number of events, their rate and size, and all of them are
// visible. A second test is counted separately.
func TestTheReportMatchesTheLoad(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		p := w.StartProjector(nil)
		a := w.StartProducer("a", nil)
		w.Leads("a")
		for n, aggregates := range []int{7, 100} {
			r, err := over(w, 50, aggregates, 20*time.Second).Run(w.Context())
			require.NoError(t, err)
			require.True(t, r.Right(), "%+v", r)
			require.EqualValues(t, 1000, r.Inserted)
			require.EqualValues(t, 1000, r.Visible)
			require.Equal(t, aggregates, r.Aggregates)
			require.InDelta(t, 50, r.Throughput, 1)
			require.Positive(t, r.LatencyMs.P50)
			require.LessOrEqual(t, r.LatencyMs.P50, r.LatencyMs.Max)
			require.EqualValues(t, 3000, r.CreditsLeast)
			require.EqualValues(t, 4000, r.CreditsMost)
			require.InDelta(t, 0.0032, r.CostMost, 1e-9)
			held, err := w.Events.CountDocuments(w.Context(), bson.D{})
			require.NoError(t, err)
			require.EqualValues(t, 1000*(n+1), held)
			require.Equal(t, 1000*(n+1), w.Bus.Stats(world.Topic).Accepted)
		}
		var one struct {
			Data bson.Raw `bson:"data"`
		}
		require.NoError(t, w.Events.FindOne(w.Context(), bson.D{}).Decode(&one))
		require.Len(t, one.Data.Lookup("padding").StringValue(), 300-len(`{"padding":""}`))
		a.End()
		_, err := p.End()
		require.NoError(t, err)
	})
}

// Events that never become visible are reported, and the lost ones are counted.
func TestMissingEventsFailTheLoadTest(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		a := w.StartProducer("a", nil)
		w.Leads("a")
		r, err := over(w, 10, 3, 10*time.Second).Run(w.Context())
		require.NoError(t, err)
		require.False(t, r.Right())
		require.Contains(t, r.GivenUp, "0 of 100 events")
		require.EqualValues(t, 100, r.Lost)
		require.Equal(t, 3, r.Mismatches)
		var text bytes.Buffer
		r.Print(&text)
		require.Contains(t, text.String(), "100 inserted, 0 visible, of 3 aggregates")
		require.Contains(t, text.String(), "given up")
		a.End()
	})
}

// A collection that an application uses is not touched.
func TestACollectionInUseIsRefused(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		w.Insert("order-17")
		_, err := over(w, 10, 3, time.Second).Run(w.Context())
		require.ErrorIs(t, err, errForeign)
		held, err := w.Events.CountDocuments(w.Context(), bson.D{})
		require.NoError(t, err)
		require.EqualValues(t, 1, held)
	})
}

func TestWrongUsage(t *testing.T) {
	all := map[string]string{"MONGODB_URI": "mongodb://nowhere", "MONGODB_DATABASE": "shop", "MONGODB_COLLECTION": "events", "READ_MODEL_DATABASE": "readmodel"}
	for _, args := range []string{"--aggregates=0", "--minutes=0", "--rate=-1", "--size=-1", "more", "--fast"} {
		var out, errOut bytes.Buffer
		require.Equal(t, 2, load(t.Context(), strings.Fields(args), func(name string) string { return all[name] }, &out, &errOut), args)
		require.Empty(t, out.String())
		require.NotEmpty(t, errOut.String())
	}
	for missing := range all {
		var errOut bytes.Buffer
		require.Equal(t, 2, load(t.Context(), nil, func(name string) string {
			if name == missing {
				return ""
			}
			return all[name]
		}, &bytes.Buffer{}, &errOut))
		require.Equal(t, "load: "+missing+" is not set\n", errOut.String())
	}
}
