// Package bench measures the services against what the broker and the database allow: the raw SDK and the naive loop, on
// the same servers, in the same run. Machines are noisy: the ratios are what counts.
package bench

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/shared/azure"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/tests/internal/stack"
)

const (
	lanes     = 16
	batchSize = 100
	padding   = 700 // makes a message of about 1 KB
)

// source is a stack with events in its collection, from a time on.
type source struct {
	stack  *stack.Stack
	events *mongo.Collection
	begun  time.Time
	count  int
}

func newSource(b *testing.B, latency time.Duration, count, aggregates int) *source {
	b.Helper()
	s, err := stack.New(b.Context(), stack.Options{Latency: latency})
	require.NoError(b, err)
	ctx, stop := context.WithCancel(context.WithoutCancel(b.Context()))
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := s.Run(ctx); err != nil {
			b.Error(err)
		}
	})
	client, err := mongo.Connect(options.Client().ApplyURI(s.Endpoint(stack.EnvMongo)))
	require.NoError(b, err)
	b.Cleanup(func() {
		_ = client.Disconnect(ctx)
		stop()
		serving.Wait()
	})
	src := &source{stack: s, events: client.Database("shop").Collection("events"), begun: time.Now().Add(-time.Second), count: count}
	documents := make([]any, 0, 1000)
	for n := range count {
		documents = append(documents, bson.D{
			{Key: "aggregateId", Value: fmt.Sprintf("a%06d", n%aggregates)},
			{Key: "version", Value: n/aggregates + 1},
			{Key: "type", Value: "Measured"},
			{Key: "pad", Value: strings.Repeat("x", padding)},
		})
		if len(documents) == cap(documents) || n == count-1 {
			_, err := src.events.InsertMany(b.Context(), documents)
			require.NoError(b, err)
			documents = documents[:0]
		}
	}
	return src
}

// arrived waits until the broker has taken all of n events.
func (s *source) arrived(b *testing.B, n int) {
	b.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for s.stack.ServiceBus.Stats(stack.Topic).Accepted < n {
		<-tick.C
	}
}

// runProducer publishes everything and reports the rate from the leader's first event on.
func (s *source) runProducer(b *testing.B, scope string) {
	b.Helper()
	ctx, stop := context.WithCancel(b.Context())
	done := make(chan error, 1)
	config := producer.Config{
		MongoURI: s.stack.Endpoint(stack.EnvMongo), Database: "shop", Collection: "events", Stream: "shop.events",
		ServiceBus: azure.ServiceBus{ConnectionString: s.stack.Endpoint(stack.EnvServiceBus)}, Topic: stack.Topic,
		Blob: azure.Blob{ConnectionString: s.stack.Endpoint(stack.EnvBlob)}, Container: "sluice",
		StartFrom: "timestamp", StartAt: s.begun, OnHistoryLost: "fail",
		Operations:      []envelope.Operation{envelope.Insert},
		AggregateIDPath: "aggregateId", EventTypePath: "type", VersionPath: "version",
		FullDocument: "updateLookup", BeforeChange: "off",
		LeaseDuration: 15 * time.Second, HeartbeatInterval: time.Second, FenceAfter: 4 * time.Second,
		TakeoverAfter: 6 * time.Second, StandbyPoll: time.Second, LeaseTakeover: "break",
		PublishLanes: lanes, BatchScope: scope, BatchMessages: batchSize, MessageFormat: "bson",
		MaxInFlightEvents: 10_000, MaxInFlightBytes: 16 << 20, ShutdownTimeout: 20 * time.Second,
	}
	go func() { done <- producer.Run(ctx, config, producer.Options{Instance: "bench"}) }()
	s.arrived(b, 1)
	begun := time.Now()
	s.arrived(b, s.count)
	report(b, s.count-1, time.Since(begun))
	stop()
	require.NoError(b, <-done)
}

// runRaw sends messages of the same size with nothing but the SDK: batches of the same size, as many outstanding.
func (s *source) runRaw(b *testing.B, aggregates int) {
	b.Helper()
	client, err := azservicebus.NewClientFromConnectionString(s.stack.Endpoint(stack.EnvServiceBus), nil)
	require.NoError(b, err)
	defer func() { _ = client.Close(context.WithoutCancel(b.Context())) }()
	sender, err := client.NewSender(stack.Topic, nil)
	require.NoError(b, err)
	_, err = sender.NewMessageBatch(b.Context(), nil) // opens the link
	require.NoError(b, err)
	body, err := bson.Marshal(bson.D{{Key: "operationType", Value: "insert"}, {Key: "pad", Value: strings.Repeat("x", padding+200)}})
	require.NoError(b, err)

	begun := time.Now()
	var sending sync.WaitGroup
	for lane := range lanes {
		sending.Go(func() {
			for first := lane * batchSize; first < s.count; first += lanes * batchSize {
				batch, err := sender.NewMessageBatch(b.Context(), nil)
				if err != nil {
					b.Error(err)
					return
				}
				for n := first; n < min(first+batchSize, s.count); n++ {
					m, err := envelope.Encode(envelope.Change{
						Stream: "raw", Token: fmt.Sprintf("82%08X", n), Position: fmt.Sprintf("82%08X", n), Epoch: 1,
						Aggregate: fmt.Sprintf("a%06d", n%aggregates), Operation: envelope.Insert, Type: "Measured", Body: body,
					}, envelope.BSON)
					if err == nil {
						err = batch.AddMessage(m, nil)
					}
					if err != nil {
						b.Error(err)
						return
					}
				}
				if err := sender.SendMessageBatch(b.Context(), batch, nil); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	sending.Wait()
	report(b, s.count, time.Since(begun))
}

// runNaive reads one change, sends it, saves the token in the blob's place (a document), and goes on.
func (s *source) runNaive(b *testing.B, count int) {
	b.Helper()
	client, err := azservicebus.NewClientFromConnectionString(s.stack.Endpoint(stack.EnvServiceBus), nil)
	require.NoError(b, err)
	defer func() { _ = client.Close(context.WithoutCancel(b.Context())) }()
	sender, err := client.NewSender(stack.Topic, nil)
	require.NoError(b, err)
	tokens := s.events.Database().Collection("tokens")
	stream, err := s.events.Watch(b.Context(), mongo.Pipeline{},
		options.ChangeStream().SetStartAtOperationTime(&bson.Timestamp{T: uint32(s.begun.Unix())}))
	require.NoError(b, err)
	defer func() { _ = stream.Close(context.WithoutCancel(b.Context())) }()
	require.True(b, stream.Next(b.Context()))
	begun := time.Now()
	for range count {
		session := stream.Current.Lookup("fullDocument", "aggregateId").StringValue()
		require.NoError(b, sender.SendMessage(b.Context(), &azservicebus.Message{Body: stream.Current, SessionID: &session}, nil))
		_, err := tokens.UpdateOne(b.Context(), bson.D{{Key: "_id", Value: "token"}},
			bson.D{{Key: "$set", Value: bson.D{{Key: "token", Value: stream.ResumeToken()}}}}, options.UpdateOne().SetUpsert(true))
		require.NoError(b, err)
		require.True(b, stream.Next(b.Context()))
	}
	report(b, count, time.Since(begun))
}

func report(b *testing.B, events int, took time.Duration) {
	b.ReportMetric(float64(events)/took.Seconds(), "events/s")
	b.ReportMetric(0, "ns/op") // one pass over all events is no operation
}

// BenchmarkPublish compares, by events a second: raw, the SDK alone with the same batches; producer, from change stream to
// acknowledgement; naive, publish one, save the token, next.
func BenchmarkPublish(b *testing.B) {
	const count = 50_000
	for _, latency := range []time.Duration{0, 2 * time.Millisecond, 10 * time.Millisecond} {
		for _, aggregates := range []int{100, 10_000} {
			name := fmt.Sprintf("latency=%v/aggregates=%d", latency, aggregates)
			b.Run(name+"/raw", func(b *testing.B) { newSource(b, latency, count, aggregates).runRaw(b, aggregates) })
			for _, scope := range []string{"session", "mixed"} {
				b.Run(name+"/producer="+scope, func(b *testing.B) {
					newSource(b, latency, count, aggregates).runProducer(b, scope)
				})
			}
			b.Run(name+"/naive", func(b *testing.B) { newSource(b, latency, 1000, aggregates).runNaive(b, 300) })
		}
	}
}
