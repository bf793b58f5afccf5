package mongo_test

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
)

func benchDocs(n int) []any {
	docs := make([]any, n)
	for i := range docs {
		docs[i] = d("aggregateId", "order-1234567", "version", i, "type", "order.placed", "occurredAt", bson.DateTime(1700000000000+int64(i)), "data", d("sku", "A-1", "amount", 12.5, "note", "some words of text"))
	}
	return docs
}

// BenchmarkInsertMany counts documents, inserted a thousand to a command.
func BenchmarkInsertMany(b *testing.B) {
	f := serve(b, mongo.Options{OplogBytes: 32 << 20})
	docs := benchDocs(1000)
	c := f.coll()
	b.ReportAllocs()
	for b.Loop() {
		_, err := c.InsertMany(b.Context(), docs)
		require.NoError(b, err)
	}
	b.ReportMetric(float64(b.N*len(docs))/b.Elapsed().Seconds(), "docs/s")
}

// BenchmarkGuardedUpsert measures the projector's kind of write, in bulk writes of a thousand.
func BenchmarkGuardedUpsert(b *testing.B) {
	f := serve(b, mongo.Options{OplogBytes: 32 << 20})
	c := f.coll()
	models := make([]driver.WriteModel, 1000)
	for i := range models {
		models[i] = driver.NewUpdateOneModel().SetFilter(d("_id", i, "_sluice.position", d("$ne", "82"))).
			SetUpdate(d("$set", d("_sluice.position", "81"), "$inc", d("n", 1), "$min", d("first", 5), "$max", d("last", 9))).SetUpsert(true)
	}
	for b.Loop() {
		_, err := c.BulkWrite(b.Context(), models, options.BulkWrite().SetOrdered(false))
		require.NoError(b, err)
	}
	b.ReportMetric(float64(b.N*len(models))/b.Elapsed().Seconds(), "updates/s")
}

// BenchmarkChangeEvents counts events read from a backlog by one stream, undecoded.
func BenchmarkChangeEvents(b *testing.B) {
	for _, c := range []struct {
		name     string
		pipeline driver.Pipeline
	}{
		{"plain", driver.Pipeline{}},
		{"match", driver.Pipeline{d("$match", d("operationType", d("$in", bson.A{"insert", "update", "replace", "delete"})))}},
	} {
		b.Run(c.name, func(b *testing.B) {
			f := serve(b, mongo.Options{})
			coll := f.coll()
			ctx := b.Context()
			start := bson.Timestamp{T: 1, I: 1}
			const backlog = 50_000
			for range backlog / 1000 {
				_, err := coll.InsertMany(ctx, benchDocs(1000))
				require.NoError(b, err)
			}
			n := 0
			for b.Loop() {
				cs, err := coll.Watch(ctx, c.pipeline, options.ChangeStream().SetStartAtOperationTime(&start).SetBatchSize(1000))
				require.NoError(b, err)
				for range backlog {
					require.True(b, cs.Next(ctx), "%v", cs.Err())
					n++
				}
				require.NoError(b, cs.Close(ctx))
			}
			b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "events/s")
		})
	}
}

// BenchmarkKeysetPage reads one page of 1000 by _id from collections of two
// sizes: the page must cost the same.
func BenchmarkKeysetPage(b *testing.B) {
	for _, size := range []int{10_000, 200_000} {
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			f := serve(b, mongo.Options{OplogBytes: 32 << 20})
			c := f.coll()
			for i := range size / 1000 {
				docs := make([]any, 1000)
				for j := range docs {
					docs[j] = d("_id", i*1000+j, "v", "some words of text")
				}
				_, err := c.InsertMany(b.Context(), docs)
				require.NoError(b, err)
			}
			for b.Loop() {
				var page []bson.Raw
				cur, err := c.Find(b.Context(), d("_id", d("$gt", size/2)), options.Find().SetSort(d("_id", 1)).SetLimit(1000))
				require.NoError(b, err)
				require.NoError(b, cur.All(b.Context(), &page))
				require.Len(b, page, 1000)
			}
		})
	}
}
