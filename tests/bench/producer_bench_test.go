// Package bench measures the services against what the broker and the database allow: the raw SDK
// and the naive loop, on the same servers, in the same run. Machines are noisy, so the ratios
// count.
package bench

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
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
	"github.com/sluice-cdc/sluice/tests/emulator"
)

const (
	batchSize = 100
	inFlight  = 5_000 // events that a sender may have in flight
	padding   = 700   // makes a message of about 1 KB
	pairs     = 5     // raw and producer, one after the other; the median counts
	adaptive  = 0     // lanes: from PUBLISH_LANES to PUBLISH_LANES_MAX, the defaults
	mostLanes = 256
)

// load describes what is published, and how.
type load struct {
	latency    time.Duration
	scope      string // session or mixed
	aggregates int
	lanes      int
}

func (l load) outstanding() int {
	if l.lanes == adaptive {
		return mostLanes
	}
	return l.lanes
}

// count returns how many events take the raw loop about a second.
func (l load) count() int {
	perBatch := batchSize
	if l.scope == "session" {
		perBatch = min(batchSize, max(1, inFlight/l.aggregates))
	}
	perSecond := float64(l.outstanding()*perBatch) / max(l.latency, 50*time.Microsecond).Seconds()
	return int(math.Round(min(max(perSecond, 400), 10_000)))
}

// source is a stack with events in its collection, inserted after a known time.
type source struct {
	stack  *emulator.Stack
	uri    string // of MongoDB
	events *mongo.Collection
	begun  time.Time
	count  int
	runs   int // streams published
}

// newSource returns the source of a run. MongoDB is the embedded one, or that of MONGODB_URI, on
// which the database shop is dropped.
func newSource(b *testing.B, latency time.Duration, count, aggregates int) *source {
	b.Helper()
	src := newEmptySource(b, emulator.Options{Latency: latency})
	src.insert(b, count, aggregates)
	return src
}

// newEmptySource is like newSource without events.
func newEmptySource(b *testing.B, o emulator.Options) *source {
	b.Helper()
	s := newStack(b, o)
	uri := cmp.Or(os.Getenv(emulator.EnvMongo), s.Endpoint(emulator.EnvMongo))
	client := connect(b, uri)
	require.NoError(b, client.Database("shop").Drop(b.Context()))
	return &source{stack: s, uri: uri, events: client.Database("shop").Collection("events"), begun: time.Now().Add(-time.Second)}
}

// insert inserts count events of so many aggregates.
func (s *source) insert(b *testing.B, count, aggregates int) {
	b.Helper()
	s.count = count
	insertEvents(b, s.events, count, aggregates, padding)
}

// insertEvents inserts count events of so many aggregates, of a size.
func insertEvents(b *testing.B, events *mongo.Collection, count, aggregates, pad int) {
	b.Helper()
	documents := make([]any, 0, 1000)
	for n := range count {
		documents = append(documents, bson.D{
			{Key: "aggregateId", Value: aggregate(n, aggregates)},
			{Key: "version", Value: n/aggregates + 1},
			{Key: "type", Value: "Measured"},
			{Key: "pad", Value: strings.Repeat("x", pad)},
		})
		if len(documents) == cap(documents) || n == count-1 {
			_, err := events.InsertMany(b.Context(), documents)
			require.NoError(b, err)
			documents = documents[:0]
		}
	}
}

func aggregate(n, aggregates int) string { return fmt.Sprintf("a%06d", n%aggregates) }

// pace is the cost of a run.
type pace struct {
	perSecond float64 // events
	cpu       float64 // microseconds of processor for each event, including the embedded servers
}

// clock starts a measurement; the function that it returns ends it.
func clock() func(events int) pace {
	begun, used := time.Now(), processor()
	return func(events int) pace {
		return pace{
			perSecond: float64(events) / time.Since(begun).Seconds(),
			cpu:       float64((processor() - used).Microseconds()) / float64(events),
		}
	}
}

// processor returns the processor time that this process has used.
func processor() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// arrived waits until the broker has accepted n events.
func (s *source) arrived(n int) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for s.stack.ServiceBus.Stats(emulator.Topic).Accepted < n {
		<-tick.C
	}
}

func (s *source) config(l load) producer.Config {
	c := producer.Config{
		MongoURI: s.uri, Database: "shop", Collection: "events", Stream: fmt.Sprintf("run-%d", s.runs),
		ServiceBus: azure.ServiceBus{ConnectionString: s.stack.Endpoint(emulator.EnvServiceBus)}, Topic: emulator.Topic,
		Blob: azure.Blob{ConnectionString: s.stack.Endpoint(emulator.EnvBlob)}, CheckpointContainer: "sluice",
		StartFrom: "timestamp", StartAt: s.begun, OnHistoryLost: "fail",
		Operations:      []envelope.Operation{envelope.Insert},
		AggregateIDPath: "aggregateId", EventTypePath: "type", VersionPath: "version",
		FullDocument: "updateLookup", BeforeChange: "off", OnUnknownAggregate: "fail",
		LeaseDuration: 15 * time.Second, HeartbeatInterval: time.Second, FenceAfter: 2500 * time.Millisecond,
		TakeoverAfter: 4 * time.Second, StandbyPoll: 500 * time.Millisecond, LeaseTakeover: "break",
		PublishLanes: l.lanes, PublishLanesMax: l.lanes, BatchScope: l.scope, BatchMessages: batchSize, MessageFormat: "bson",
		OnOversize: "fail", RefusedAfter: 5 * time.Minute, MaxInFlightEvents: inFlight, MaxInFlightBytes: 16 << 20, ShutdownTimeout: 20 * time.Second,
	}
	if l.lanes == adaptive {
		c.PublishLanes, c.PublishLanesMax = 16, mostLanes
	}
	return c
}

// runProducer publishes everything; it measures from the first event that arrives to the last.
func (s *source) runProducer(b *testing.B, l load) pace {
	b.Helper()
	return s.runProducerWith(b, l, func(*producer.Config) {})
}

// runProducerWith is like runProducer with other settings.
func (s *source) runProducerWith(b *testing.B, l load, change func(*producer.Config)) pace {
	b.Helper()
	s.runs++
	before := s.stack.ServiceBus.Stats(emulator.Topic).Accepted
	config := s.config(l)
	change(&config)
	stop := start(b, func(ctx context.Context) error { return producer.Run(ctx, config, producer.Options{Instance: "bench"}) })
	s.arrived(before + 1)
	took := clock()
	s.arrived(before + s.count)
	p := took(s.count - 1)
	stop()
	return p
}

// batches returns the events of a raw run as the service accepts them: any in a batch, or only
// those of one session, out of as many as the producer may have in flight.
func (s *source) batches(l load) (out [][]int) {
	for first := 0; first < s.count; first += inFlight {
		waiting := map[string][]int{}
		var order []string
		for n := first; n < min(first+inFlight, s.count); n++ {
			key := ""
			if l.scope == "session" {
				key = aggregate(n, l.aggregates)
			}
			if waiting[key] == nil {
				order = append(order, key)
			}
			waiting[key] = append(waiting[key], n)
		}
		for _, key := range order {
			out = slices.AppendSeq(out, slices.Chunk(waiting[key], batchSize))
		}
	}
	return out
}

// runRaw sends messages of the same size with the SDK only: batches of the same scope, the same
// number outstanding, in no particular order.
func (s *source) runRaw(b *testing.B, l load) pace {
	b.Helper()
	s.runs++
	stream := fmt.Sprintf("raw-%d", s.runs)
	client, err := azservicebus.NewClientFromConnectionString(s.stack.Endpoint(emulator.EnvServiceBus), nil)
	require.NoError(b, err)
	defer func() { _ = client.Close(context.WithoutCancel(b.Context())) }()
	sender, err := client.NewSender(emulator.Topic, nil)
	require.NoError(b, err)
	_, err = sender.NewMessageBatch(b.Context(), nil) // opens the link
	require.NoError(b, err)
	body, err := bson.Marshal(bson.D{{Key: "operationType", Value: "insert"}, {Key: "pad", Value: strings.Repeat("x", padding+200)}})
	require.NoError(b, err)
	batches := s.batches(l)

	took := clock()
	var next atomic.Int64
	var sending sync.WaitGroup
	for range l.outstanding() {
		sending.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(batches)); i = next.Add(1) - 1 {
				if err := sendRaw(b.Context(), sender, stream, l, batches[i], body); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	sending.Wait()
	return took(s.count)
}

func sendRaw(ctx context.Context, sender *azservicebus.Sender, stream string, l load, events []int, body bson.Raw) error {
	batch, err := sender.NewMessageBatch(ctx, nil)
	if err != nil {
		return err
	}
	for _, n := range events {
		position := fmt.Sprintf("82%08X", n)
		m, err := envelope.Encode(envelope.Change{
			Stream: stream, Token: position, Position: position, Epoch: 1, Aggregate: aggregate(n, l.aggregates),
			Operation: envelope.Insert, Type: "Measured", Body: body,
		}, envelope.BSON)
		if err != nil {
			return err
		}
		if err := batch.AddMessage(m, nil); err != nil {
			return err
		}
	}
	return sender.SendMessageBatch(ctx, batch, nil)
}

// runRead only reads the change stream: that is the producer's cost besides sending.
func (s *source) runRead(b *testing.B) pace {
	b.Helper()
	stream, err := s.events.Watch(b.Context(), mongo.Pipeline{}, options.ChangeStream().SetBatchSize(1000).
		SetStartAtOperationTime(&bson.Timestamp{T: uint32(s.begun.Unix())}))
	require.NoError(b, err)
	defer func() { _ = stream.Close(context.WithoutCancel(b.Context())) }()
	took := clock()
	for range s.count {
		require.True(b, stream.Next(b.Context()))
	}
	return took(s.count)
}

// runNaive reads one change, sends it, saves the token (in a document instead of the blob), and
// continues.
func (s *source) runNaive(b *testing.B, count int) pace {
	b.Helper()
	client, err := azservicebus.NewClientFromConnectionString(s.stack.Endpoint(emulator.EnvServiceBus), nil)
	require.NoError(b, err)
	defer func() { _ = client.Close(context.WithoutCancel(b.Context())) }()
	sender, err := client.NewSender(emulator.Topic, nil)
	require.NoError(b, err)
	tokens := s.events.Database().Collection("tokens")
	stream, err := s.events.Watch(b.Context(), mongo.Pipeline{},
		options.ChangeStream().SetStartAtOperationTime(&bson.Timestamp{T: uint32(s.begun.Unix())}))
	require.NoError(b, err)
	defer func() { _ = stream.Close(context.WithoutCancel(b.Context())) }()
	require.True(b, stream.Next(b.Context()))
	took := clock()
	for range count {
		session := stream.Current.Lookup("fullDocument", "aggregateId").StringValue()
		require.NoError(b, sender.SendMessage(b.Context(), &azservicebus.Message{Body: stream.Current, SessionID: &session}, nil))
		_, err := tokens.UpdateOne(b.Context(), bson.D{{Key: "_id", Value: "token"}},
			bson.D{{Key: "$set", Value: bson.D{{Key: "token", Value: stream.ResumeToken()}}}}, options.UpdateOne().SetUpsert(true))
		require.NoError(b, err)
		require.True(b, stream.Next(b.Context()))
	}
	return took(count)
}

// inTurn measures two ways, one after the other, in pairs.
func inTurn(theirs, ours func() pace) (runs [][2]pace) {
	for range pairs {
		runs = append(runs, [2]pace{theirs(), ours()})
	}
	return runs
}

// reportMedian reports the median of what f returns of each pair.
func reportMedian(b *testing.B, runs [][2]pace, unit string, f func(theirs, ours pace) float64) {
	b.Helper()
	var values []float64
	for _, run := range runs {
		values = append(values, f(run[0], run[1]))
	}
	slices.Sort(values)
	b.ReportMetric(values[len(values)/2], unit)
}

// BenchmarkPublish compares the producer, from change stream to acknowledgement, with the SDK's
// send loop: same broker, same batches, same number outstanding, one after the other in one run.
// The decisive metric is "producer/raw".
func BenchmarkPublish(b *testing.B) {
	for _, latency := range []time.Duration{0, 2 * time.Millisecond, 10 * time.Millisecond} {
		for _, scope := range []string{"session", "mixed"} {
			for _, aggregates := range []int{8, 100_000} {
				for _, lanes := range []int{1, 4, 16, 64, adaptive} {
					l := load{latency: latency, scope: scope, aggregates: aggregates, lanes: lanes}
					name := fmt.Sprintf("latency=%v/%s/aggregates=%d/lanes=%d", latency, scope, aggregates, lanes)
					if lanes == adaptive {
						name = strings.TrimSuffix(name, "0") + "adaptive"
					}
					b.Run(name, func(b *testing.B) { publish(b, l) })
				}
			}
		}
	}
}

func publish(b *testing.B, l load) {
	s := newSource(b, l.latency, l.count(), l.aggregates)
	s.runRaw(b, l) // to warm up
	runs := inTurn(func() pace { return s.runRaw(b, l) }, func() pace { return s.runProducer(b, l) })
	read := s.runRead(b)
	reportMedian(b, runs, "producer/raw", func(raw, ours pace) float64 { return ours.perSecond / raw.perSecond })
	reportMedian(b, runs, "raw-events/s", func(raw, _ pace) float64 { return raw.perSecond })
	reportMedian(b, runs, "events/s", func(_, ours pace) float64 { return ours.perSecond })
	reportMedian(b, runs, "raw-cpu-µs/event", func(raw, _ pace) float64 { return raw.cpu })
	reportMedian(b, runs, "cpu-µs/event", func(_, ours pace) float64 { return ours.cpu })
	b.ReportMetric(read.cpu, "read-cpu-µs/event")
	b.ReportMetric(0, "ns/op") // a pass over all events is not an operation
}

// BenchmarkPublishNaive compares the producer with the naive loop: publish one, save the token,
// next.
func BenchmarkPublishNaive(b *testing.B) {
	for _, latency := range []time.Duration{0, 2 * time.Millisecond, 10 * time.Millisecond} {
		for _, aggregates := range []int{8, 100_000} {
			b.Run(fmt.Sprintf("latency=%v/aggregates=%d", latency, aggregates), func(b *testing.B) {
				l := load{latency: latency, scope: "session", aggregates: aggregates, lanes: adaptive}
				s := newSource(b, latency, l.count(), aggregates)
				runs := inTurn(func() pace { return s.runNaive(b, 200) }, func() pace { return s.runProducer(b, l) })
				reportMedian(b, runs, "producer/naive", func(naive, ours pace) float64 { return ours.perSecond / naive.perSecond })
				reportMedian(b, runs, "naive-events/s", func(naive, _ pace) float64 { return naive.perSecond })
				reportMedian(b, runs, "events/s", func(_, ours pace) float64 { return ours.perSecond })
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}
