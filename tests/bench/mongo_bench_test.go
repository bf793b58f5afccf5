package bench

import (
	"context"
	"net"
	"runtime"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	emulator "github.com/sluice-cdc/sluice/tests/emulator/mongo"
)

// embeddedMongo serves an embedded MongoDB over TCP and returns a collection of it.
func embeddedMongo(b *testing.B, opts emulator.Options) *mongo.Collection {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	srv := emulator.New(opts)
	start(b, func(ctx context.Context) error { return srv.Run(ctx, l) })
	return connect(b, emulator.URI(l.Addr().String())).Database("bench").Collection("events")
}

// orders returns a thousand documents like those of the generated workload.
func orders() []any {
	docs := make([]any, 1000)
	for i := range docs {
		docs[i] = bson.D{
			{Key: "_id", Value: i},
			{Key: "aggregateId", Value: "order-" + strconv.Itoa(i)},
			{Key: "version", Value: 0},
			{Key: "type", Value: "order.placed"},
			{Key: "occurredAt", Value: bson.DateTime(1_700_000_000_000 + int64(i))},
			{Key: "data", Value: bson.D{{Key: "sku", Value: "A-1"}, {Key: "amount", Value: 12.5}, {Key: "note", Value: "some words of text"}}},
		}
	}
	return docs
}

// BenchmarkMongoMemory updates the same thousand documents repeatedly, with an oplog of 8 MB: the
// heap must not grow with the number of updates. It reports the heap after half of the updates and
// after all.
func BenchmarkMongoMemory(b *testing.B) {
	const rounds = 200
	heap := func() float64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc) / (1 << 20)
	}
	for b.Loop() {
		coll := embeddedMongo(b, emulator.Options{OplogBytes: 8 << 20})
		_, err := coll.InsertMany(b.Context(), orders())
		require.NoError(b, err)
		for round := range rounds {
			if round == rounds/2 {
				b.ReportMetric(heap(), "MB_at_50%")
			}
			models := make([]mongo.WriteModel, 1000)
			for i := range models {
				models[i] = mongo.NewUpdateOneModel().SetFilter(bson.D{{Key: "_id", Value: i}}).SetUpdate(bson.D{{Key: "$inc", Value: bson.D{{Key: "version", Value: 1}}}})
			}
			_, err := coll.BulkWrite(b.Context(), models)
			require.NoError(b, err)
		}
		b.ReportMetric(heap(), "MB_at_100%")
	}
}
