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
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"golang.org/x/sync/errgroup"

	emulator "github.com/sluice-cdc/sluice/tests/emulator/mongo"
)

// embeddedMongo serves an embedded MongoDB over TCP and returns a collection of it.
func embeddedMongo(b *testing.B, opts emulator.Options) *mongo.Collection {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	srv := emulator.New(opts)
	ctx, cancel := context.WithCancel(context.WithoutCancel(b.Context()))
	var serving errgroup.Group
	serving.Go(func() error { return srv.Run(ctx, l) })
	client, err := mongo.Connect(options.Client().ApplyURI(emulator.URI(l.Addr().String())))
	require.NoError(b, err)
	b.Cleanup(func() {
		require.NoError(b, client.Disconnect(ctx))
		cancel()
		require.NoError(b, serving.Wait())
	})
	return client.Database("bench").Collection("events")
}

// orderEvents returns documents like those of the generated workload.
func orderEvents(from, n int) []any {
	docs := make([]any, n)
	for i := range docs {
		docs[i] = bson.D{
			{Key: "_id", Value: from + i},
			{Key: "aggregateId", Value: "order-" + strconv.Itoa((from+i)%1000)},
			{Key: "version", Value: (from + i) / 1000},
			{Key: "type", Value: "order.placed"},
			{Key: "occurredAt", Value: bson.DateTime(1_700_000_000_000 + int64(from+i))},
			{Key: "data", Value: bson.D{{Key: "sku", Value: "A-1"}, {Key: "amount", Value: 12.5}, {Key: "note", Value: "some words of text"}}},
		}
	}
	return docs
}

// BenchmarkMongoInsertMany measures the embedded MongoDB's rate of inserts, with a thousand in a
// command and one client. Goal: 30,000 docs/s on two cores.
func BenchmarkMongoInsertMany(b *testing.B) {
	coll := embeddedMongo(b, emulator.Options{OplogBytes: 32 << 20})
	inserted := 0
	for b.Loop() {
		_, err := coll.InsertMany(b.Context(), orderEvents(inserted, 1000))
		require.NoError(b, err)
		inserted += 1000
	}
	b.ReportMetric(float64(inserted)/b.Elapsed().Seconds(), "docs/s")
}

// BenchmarkMongoChangeEvents measures the rate at which one change stream reads a backlog. Goal:
// 50,000 events/s on two cores.
func BenchmarkMongoChangeEvents(b *testing.B) {
	const backlog = 50_000
	coll := embeddedMongo(b, emulator.Options{})
	ctx := b.Context()
	cs, err := coll.Watch(ctx, mongo.Pipeline{})
	require.NoError(b, err)
	start := cs.ResumeToken()
	require.NoError(b, cs.Close(ctx))
	for i := 0; i < backlog; i += 1000 {
		_, err := coll.InsertMany(ctx, orderEvents(i, 1000))
		require.NoError(b, err)
	}
	read := 0
	for b.Loop() {
		cs, err := coll.Watch(ctx, mongo.Pipeline{}, options.ChangeStream().SetResumeAfter(start).SetBatchSize(1000))
		require.NoError(b, err)
		for range backlog {
			require.True(b, cs.Next(ctx), "%v", cs.Err())
		}
		require.NoError(b, cs.Close(ctx))
		read += backlog
	}
	b.ReportMetric(float64(read)/b.Elapsed().Seconds(), "events/s")
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
		_, err := coll.InsertMany(b.Context(), orderEvents(0, 1000))
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

// BenchmarkMongoSnapshotPage reads a page of a thousand documents by _id, as the snapshot of an
// existing collection does: a large collection must not cost more.
func BenchmarkMongoSnapshotPage(b *testing.B) {
	for _, size := range []int{10_000, 200_000} {
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			coll := embeddedMongo(b, emulator.Options{OplogBytes: 8 << 20})
			for i := 0; i < size; i += 1000 {
				_, err := coll.InsertMany(b.Context(), orderEvents(i, 1000))
				require.NoError(b, err)
			}
			after := bson.D{{Key: "_id", Value: bson.D{{Key: "$gt", Value: size / 2}}}}
			sorted := options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}).SetLimit(1000).SetBatchSize(1000)
			read := 0
			for b.Loop() {
				cursor, err := coll.Find(b.Context(), after, sorted)
				require.NoError(b, err)
				var page []bson.Raw
				require.NoError(b, cursor.All(b.Context(), &page))
				require.Len(b, page, 1000)
				read += len(page)
			}
			b.ReportMetric(float64(read)/b.Elapsed().Seconds(), "docs/s")
		})
	}
}
