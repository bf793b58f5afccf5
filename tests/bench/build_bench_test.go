package bench

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/shared/azure"
	"github.com/sluice-cdc/sluice/tests/emulator"
)

const (
	buildEvents     = 200_000
	buildAggregates = 10_000
)

// BenchmarkBuild builds the projection timeline from an event store, by `projector build` and by
// the loop that a user would write instead: every document in order, with one update each.
func BenchmarkBuild(b *testing.B) {
	s, err := emulator.New(b.Context(), emulator.Options{})
	require.NoError(b, err)
	ctx, stop := context.WithCancel(context.WithoutCancel(b.Context()))
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := s.Run(ctx); err != nil {
			b.Error(err)
		}
	})
	uri := s.Endpoint(emulator.EnvMongo)
	client, err := mongo.Connect(options.Client().ApplyURI(uri))
	require.NoError(b, err)
	b.Cleanup(func() {
		_ = client.Disconnect(ctx)
		stop()
		serving.Wait()
	})
	source := client.Database("shop").Collection("events")
	_, err = source.Indexes().CreateOne(b.Context(), mongo.IndexModel{Keys: bson.D{{Key: "aggregateId", Value: 1}, {Key: "version", Value: 1}}})
	require.NoError(b, err)
	var documents []any
	for n := range buildEvents {
		documents = append(documents, bson.D{
			{Key: "aggregateId", Value: fmt.Sprintf("a%06d", n%buildAggregates)},
			{Key: "version", Value: int64(n/buildAggregates + 1)},
			{Key: "type", Value: "Counted"},
			{Key: "occurredAt", Value: "2026-01-02T03:04:05Z"},
			{Key: "data", Value: bson.D{{Key: "n", Value: n}}},
		})
		if len(documents) == 5000 {
			_, err := source.InsertMany(b.Context(), documents)
			require.NoError(b, err)
			documents = documents[:0]
		}
	}
	storage := s.Endpoint(emulator.EnvBlob)
	blobs, err := azblob.NewClientFromConnectionString(storage, nil)
	require.NoError(b, err)
	_, err = blobs.CreateContainer(b.Context(), "sluice", nil)
	require.NoError(b, err)
	_, err = blobs.UploadBuffer(b.Context(), "sluice", "shop.events.json", []byte(`{"schema": 5, "stream": "shop.events",
		"position": "8263A1B2C3000000012B042C0100296E5A1004", "reading": {"aggregateIdPath": "aggregateId", "versionPath": "version",
		"operations": "insert", "collection": "shop.events"}}`), nil)
	require.NoError(b, err)

	b.Run("projector build", func(b *testing.B) {
		for n := 0; b.Loop(); n++ {
			config := projector.Config{
				ServiceBus: azure.ServiceBus{ConnectionString: s.Endpoint(emulator.EnvServiceBus)}, Topic: emulator.Topic, Subscription: emulator.Subscription,
				MongoURI: uri, Database: fmt.Sprint("built", n), Projection: "timeline", Blob: azure.Blob{ConnectionString: storage},
				CheckpointContainer: "sluice", ClaimContainer: "claim-checks", SourceDatabase: "shop", SourceCollection: "events",
				AggregateIDPath: "aggregateId", EventTypePath: "type", VersionPath: "version", MaxSessions: 1, ReceiveBatch: 1, SessionIdle: time.Second,
				SessionMaxHold: time.Second, AcceptTimeout: time.Second, ApplyTimeout: 10 * time.Second, SettleTimeout: time.Second, ShutdownTimeout: 5 * time.Second,
			}
			var out bytes.Buffer
			code := projector.Execute(b.Context(), []string{"build"}, func() (projector.Config, error) { return config, nil },
				projector.Options{}, &out, &out, nil)
			require.Zero(b, code, out.String())
			judge(b, client, config.Database)
		}
		b.ReportMetric(float64(buildEvents*b.N)/b.Elapsed().Seconds(), "events/s")
	})
	b.Run("naive loop", func(b *testing.B) {
		const some = buildEvents / 20
		for n := 0; b.Loop(); n++ {
			model := client.Database(fmt.Sprint("naive", n)).Collection("timeline")
			cursor, err := source.Find(b.Context(), bson.D{}, options.Find().SetSort(bson.D{{Key: "aggregateId", Value: 1}, {Key: "version", Value: 1}}).SetLimit(some))
			require.NoError(b, err)
			for cursor.Next(b.Context()) {
				_, err := model.UpdateOne(b.Context(), bson.D{{Key: "_id", Value: cursor.Current.Lookup("aggregateId")}},
					bson.D{{Key: "$inc", Value: bson.D{{Key: "events", Value: 1}}}}, options.UpdateOne().SetUpsert(true))
				require.NoError(b, err)
			}
			require.NoError(b, cursor.Err())
		}
		b.ReportMetric(float64(some*b.N)/b.Elapsed().Seconds(), "events/s")
	})
}

// judge requires that every aggregate has all of its events.
func judge(b *testing.B, client *mongo.Client, database string) {
	b.Helper()
	right, err := client.Database(database).Collection("timeline").CountDocuments(b.Context(), bson.D{{Key: "events", Value: buildEvents / buildAggregates}})
	require.NoError(b, err)
	require.EqualValues(b, buildAggregates, right)
}
