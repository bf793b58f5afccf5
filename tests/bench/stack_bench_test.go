package bench

import (
	"context"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/tests/emulator"
)

// newStack returns a stack that serves until the benchmark has ended.
func newStack(b *testing.B, o emulator.Options) *emulator.Stack {
	b.Helper()
	s, err := emulator.New(b.Context(), o)
	require.NoError(b, err)
	start(b, s.Run)
	return s
}

// start runs something until the benchmark has ended, or stop is called; then it must have returned
// no error.
func start(b *testing.B, run func(ctx context.Context) error) (stop func()) {
	b.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(b.Context()))
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(b, <-done)
	})
	b.Cleanup(stop)
	return stop
}

// connect returns a client of MongoDB.
func connect(b *testing.B, uri string) *mongo.Client {
	b.Helper()
	client, err := mongo.Connect(options.Client().ApplyURI(uri))
	require.NoError(b, err)
	b.Cleanup(func() { _ = client.Disconnect(context.WithoutCancel(b.Context())) })
	return client
}

// ascending returns the keys of an index.
func ascending(fields ...string) (index mongo.IndexModel) {
	keys := bson.D{}
	for _, field := range fields {
		keys = append(keys, bson.E{Key: field, Value: 1})
	}
	return mongo.IndexModel{Keys: keys}
}

// connectBus returns a client of Service Bus.
func connectBus(b *testing.B, s *emulator.Stack) *azservicebus.Client {
	b.Helper()
	client, err := azservicebus.NewClientFromConnectionString(s.Endpoint(emulator.EnvServiceBus), nil)
	require.NoError(b, err)
	b.Cleanup(func() { _ = client.Close(context.WithoutCancel(b.Context())) })
	return client
}

// newSender returns a sender to the topic.
func newSender(b *testing.B, s *emulator.Stack) *azservicebus.Sender {
	b.Helper()
	sender, err := connectBus(b, s).NewSender(emulator.Topic, nil)
	require.NoError(b, err)
	return sender
}

// number returns the number in a variable of the environment, or otherwise another one.
func number(b *testing.B, name string, otherwise int) int {
	b.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	require.NoError(b, err, name)
	return n
}

// reportTimes reports the median, the 99th percentile and the maximum of what something took.
func reportTimes(b *testing.B, took []time.Duration) {
	b.Helper()
	slices.Sort(took)
	b.ReportMetric(1000*took[len(took)/2].Seconds(), "p50-ms")
	b.ReportMetric(1000*took[len(took)*99/100].Seconds(), "p99-ms")
	b.ReportMetric(1000*took[len(took)-1].Seconds(), "max-ms")
}
