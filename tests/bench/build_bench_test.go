package bench

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/tests/emulator"
	"github.com/sluice-cdc/sluice/tests/internal/child"
	"github.com/sluice-cdc/sluice/tests/internal/stack"
)

// BenchmarkBuild builds the projection timeline from an event store, by `projector build` and by
// the loop that a user would write instead: every document in order, with one update each. There
// are BUILD_EVENTS events of BUILD_AGGREGATES aggregates, by default 20 of each.
func BenchmarkBuild(b *testing.B) {
	s := newStack(b, emulator.Options{})
	uri := s.Endpoint(emulator.EnvMongo)
	if stack.Theirs() {
		uri, _ = stack.MongoDB(b, s)
	}
	events := number(b, "BUILD_EVENTS", 200_000)
	aggregates := number(b, "BUILD_AGGREGATES", events/20)
	client := connect(b, uri)
	source := client.Database("shop").Collection("events")
	_, err := source.Indexes().CreateOne(b.Context(), ascending("aggregateId", "version"))
	require.NoError(b, err)
	var documents []any
	for n := range events {
		documents = append(documents, bson.D{
			{Key: "aggregateId", Value: fmt.Sprintf("a%06d", n%aggregates)},
			{Key: "version", Value: int64(n/aggregates + 1)},
			{Key: "type", Value: "Counted"},
			{Key: "occurredAt", Value: "2026-01-02T03:04:05Z"},
			{Key: "data", Value: bson.D{{Key: "n", Value: n}}},
		})
		if len(documents) == 5000 || n == events-1 {
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

	programs := b.TempDir()
	require.NoError(b, child.BuildProgram(b.Context(), "projector/cmd/projector", programs+"/projector"))
	for _, parallel := range []string{"1", "2", "4"} {
		b.Run("projector build --parallel "+parallel, func(b *testing.B) {
			var used time.Duration
			var peak int64 // in KiB
			for n := 0; b.Loop(); n++ {
				database := fmt.Sprint("built", parallel, "_", n)
				cmd := exec.CommandContext(b.Context(), programs+"/projector", "build", "--parallel", parallel) //nolint:gosec // it was just built
				cmd.Env = append(os.Environ(),
					"SERVICE_BUS_CONNECTION_STRING="+s.Endpoint(emulator.EnvServiceBus), "SERVICE_BUS_TOPIC="+emulator.Topic,
					"SERVICE_BUS_SUBSCRIPTION="+emulator.Subscription, "MONGODB_URI="+uri, "READ_MODEL_DATABASE="+database, "PROJECTION=timeline",
					"BLOB_CONNECTION_STRING="+storage, "SOURCE_DATABASE=shop", "SOURCE_COLLECTION=events")
				out, err := cmd.CombinedOutput()
				require.NoError(b, err, string(out))
				used += cmd.ProcessState.SystemTime() + cmd.ProcessState.UserTime()
				if usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
					peak = max(peak, usage.Maxrss)
				}
				right, err := client.Database(database).Collection("timeline").CountDocuments(b.Context(), bson.D{{Key: "events", Value: events / aggregates}})
				require.NoError(b, err)
				require.EqualValues(b, aggregates, right)
				require.NoError(b, client.Database(database).Drop(b.Context()))
			}
			b.ReportMetric(float64(events*b.N)/b.Elapsed().Seconds(), "events/s")
			b.ReportMetric(used.Seconds()*1e6/float64(events*b.N), "CPU-µs/event")
			b.ReportMetric(float64(peak)/1024, "peak-MiB")
		})
	}
	b.Run("naive loop", func(b *testing.B) {
		some := events / 20
		for n := 0; b.Loop(); n++ {
			model := client.Database(fmt.Sprint("naive", n)).Collection("timeline")
			cursor, err := source.Find(b.Context(), bson.D{}, options.Find().SetSort(bson.D{{Key: "aggregateId", Value: 1}, {Key: "version", Value: 1}}).SetLimit(int64(some)))
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
