package bench

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/azure"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/tests/emulator"
	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
)

const (
	subscriptionPath = emulator.Topic + "/Subscriptions/" + emulator.Subscription
	readModel        = "readmodel"
)

// backlog is a stack with messages waiting in its subscription.
type backlog struct {
	stack *emulator.Stack
	mongo *mongo.Client
	count int
}

// newBacklog publishes count events, distributed evenly over the aggregates, under a session key.
func newBacklog(b *testing.B, latency time.Duration, count, aggregates int, key envelope.SessionKey) *backlog {
	b.Helper()
	s := newStack(b, emulator.Options{Latency: latency})
	sender := newSender(b, s)
	for first := 0; first < count; first += batchSize {
		batch, err := sender.NewMessageBatch(b.Context(), nil)
		require.NoError(b, err)
		for n := first; n < min(first+batchSize, count); n++ {
			require.NoError(b, batch.AddMessage(counted(b, n, aggregates, key), nil))
		}
		require.NoError(b, sender.SendMessageBatch(b.Context(), batch, nil))
	}
	return &backlog{stack: s, mongo: connect(b, s.Endpoint(emulator.EnvMongo)), count: count}
}

// counted returns the message of the n-th event.
func counted(b *testing.B, n, aggregates int, key envelope.SessionKey) *azservicebus.Message {
	b.Helper()
	aggregate := fmt.Sprintf("a%06d", n%aggregates)
	body, err := bson.Marshal(bson.D{
		{Key: "operationType", Value: "insert"},
		{Key: "documentKey", Value: bson.D{{Key: "_id", Value: n}}},
		{Key: "fullDocument", Value: bson.D{
			{Key: "_id", Value: n},
			{Key: "aggregateId", Value: aggregate},
			{Key: "version", Value: n/aggregates + 1},
			{Key: "type", Value: "Measured"},
			{Key: "occurredAt", Value: "2026-01-01T00:00:00Z"},
			{Key: "pad", Value: strings.Repeat("x", padding)},
		}},
	})
	require.NoError(b, err)
	position := fmt.Sprintf("82%022X", n+1)
	m, err := envelope.Encode(envelope.Change{
		Stream: "shop.events", Token: position, Position: position, Epoch: 1, Aggregate: aggregate, Session: key.Session(aggregate),
		Operation: envelope.Insert, Type: "Measured", Version: int64(n/aggregates + 1), Body: body,
	}, envelope.BSON)
	require.NoError(b, err)
	return m
}

// completed waits until n messages of the subscription are completed.
func (l *backlog) completed(b *testing.B, n int) {
	b.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for l.stack.ServiceBus.Stats(subscriptionPath).Completed < n {
		<-tick.C
	}
}

// projectorConfig returns the settings of a replica, with the defaults.
func projectorConfig(s *emulator.Stack) projector.Config {
	return projector.Config{
		ServiceBus: azure.ServiceBus{ConnectionString: s.Endpoint(emulator.EnvServiceBus)},
		Topic:      emulator.Topic, Subscription: emulator.Subscription,
		MongoURI: s.Endpoint(emulator.EnvMongo), Database: readModel, Projection: "timeline",
		MaxSessions: 64, ReceiveBatch: 100,
		SessionIdle: 2 * time.Second, SessionMaxHold: 5 * time.Second,
		AcceptTimeout: time.Minute, ApplyTimeout: 10 * time.Second, SettleTimeout: 5 * time.Second,
		ShutdownTimeout: 20 * time.Second,
	}
}

// project runs the replicas until everything is completed, and reports the rate from the first
// completion on.
func (l *backlog) project(b *testing.B, replicas int, change func(*projector.Config)) {
	b.Helper()
	l.run(b, replicas, projector.Options{}, change)
}

func (l *backlog) run(b *testing.B, replicas int, o projector.Options, change func(*projector.Config)) {
	b.Helper()
	config := projectorConfig(l.stack)
	if change != nil {
		change(&config)
	}
	stop := start(b, func(ctx context.Context) error {
		var running errgroup.Group
		for i := range replicas {
			own := o
			own.Instance = fmt.Sprint("bench-", i)
			running.Go(func() error { return projector.Run(ctx, config, own) })
		}
		return running.Wait()
	})
	l.completed(b, 1)
	taken := clock()
	l.completed(b, l.count)
	reportPace(b, taken(l.count-1))
	b.ReportMetric(float64(l.stack.ServiceBus.Operations()[servicebus.OperationAccept])/float64(l.count), "accepts/event")
	b.ReportMetric(float64(l.stack.ServiceBus.Operations()["peek-message"])/float64(l.count), "peeks/event")
	stop()
}

// naive applies count events: receive one, apply one, complete one, in the given number of sessions
// at a time, each held as long as it has messages. The write is the minimum that makes a repeat
// harmless: one conditional update.
func (l *backlog) naive(b *testing.B, count, sessions, aggregates int) {
	b.Helper()
	client := connectBus(b, l.stack)
	timelines := l.mongo.Database(readModel).Collection("timeline")
	receivers := make([]*azservicebus.SessionReceiver, sessions)
	for i := range receivers {
		var err error
		receivers[i], err = client.AcceptSessionForSubscription(b.Context(), emulator.Topic, emulator.Subscription,
			fmt.Sprintf("a%06d", i%aggregates), nil)
		require.NoError(b, err)
	}
	taken := clock()
	var looping errgroup.Group
	for _, r := range receivers {
		looping.Go(func() error {
			for range count / sessions {
				messages, err := r.ReceiveMessages(b.Context(), 1, nil)
				if err != nil {
					return err
				}
				change, err := envelope.Decode(messages[0])
				if err != nil {
					return err
				}
				if _, err := timelines.UpdateOne(b.Context(),
					bson.D{{Key: "_id", Value: change.Aggregate}, {Key: "position", Value: bson.D{{Key: "$not", Value: bson.D{{Key: "$gte", Value: change.Position}}}}}},
					bson.D{
						{Key: "$inc", Value: bson.D{{Key: "events", Value: 1}, {Key: "types." + change.Type, Value: 1}}},
						{Key: "$set", Value: bson.D{{Key: "position", Value: change.Position}, {Key: "lastType", Value: change.Type}}},
					}, options.UpdateOne().SetUpsert(true)); err != nil {
					return err
				}
				if err := r.CompleteMessage(b.Context(), messages[0], nil); err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(b, looping.Wait())
	reportPace(b, taken(count))
}

// reportPace reports a rate and the processor time for each event, including that of the broker and
// the database.
func reportPace(b *testing.B, p pace) {
	b.Helper()
	b.ReportMetric(p.perSecond, "events/s")
	b.ReportMetric(p.cpu, "cpu-µs/event")
	b.ReportMetric(0, "ns/op") // a pass over all events is not an operation
}

// BenchmarkProject compares, in events a second: naive (receive one, apply one, complete one),
// naive=64 (the same in 64 sessions at once) and projector (one replica with the defaults).
func BenchmarkProject(b *testing.B) {
	const aggregates = 100
	for _, latency := range []time.Duration{0, 2 * time.Millisecond, 10 * time.Millisecond} {
		name := fmt.Sprintf("latency=%v", latency)
		b.Run(name+"/naive", func(b *testing.B) {
			newBacklog(b, latency, 200*aggregates, aggregates, envelope.SessionKey{}).naive(b, 150, 1, aggregates)
		})
		b.Run(name+"/naive=64", func(b *testing.B) {
			newBacklog(b, latency, 100*aggregates, aggregates, envelope.SessionKey{}).naive(b, 64*50, 64, aggregates)
		})
		b.Run(name+"/projector", func(b *testing.B) {
			newBacklog(b, latency, 200*aggregates, aggregates, envelope.SessionKey{}).project(b, 1, nil)
		})
	}
}

// BenchmarkProjectReplicas measures the rate of several replicas if waiting dominates: few sessions
// each and a long round trip, so that the machine is not the limit.
func BenchmarkProjectReplicas(b *testing.B) {
	const latency, aggregates, each = 10 * time.Millisecond, 100, 60
	for _, replicas := range []int{1, 2, 4} {
		b.Run(fmt.Sprintf("latency=%v/replicas=%d", latency, replicas), func(b *testing.B) {
			newBacklog(b, latency, each*aggregates, aggregates, envelope.SessionKey{}).project(b, replicas, func(c *projector.Config) {
				c.MaxSessions, c.Connections, c.ReceiveBatch = 4, 4, 10
			})
		})
	}
}

// BenchmarkProjectSessionKey measures the rate with very many aggregates that have few events: each
// with its own session, or all of them in N sessions.
func BenchmarkProjectSessionKey(b *testing.B) {
	const aggregates = 8000
	for _, latency := range []time.Duration{0, 2 * time.Millisecond, 10 * time.Millisecond} {
		for _, key := range []envelope.SessionKey{{}, envelope.Buckets(16), envelope.Buckets(64), envelope.Buckets(256), envelope.Buckets(1024)} {
			b.Run(fmt.Sprintf("latency=%v/key=%s", latency, key), func(b *testing.B) {
				newBacklog(b, latency, aggregates, aggregates, key).project(b, 1, nil)
			})
		}
	}
}

// BenchmarkProjectBacklog measures the rate with 60,000 events of 8,000 aggregates, each with its
// own session.
func BenchmarkProjectBacklog(b *testing.B) {
	newBacklog(b, 2*time.Millisecond, 60_000, 8000, envelope.SessionKey{}).project(b, 1, nil)
}

// BenchmarkProjectConnections measures the rate with a session for each event, by number of
// connections: the cost of an accept, and how much of it excludes other accepts on its connection.
func BenchmarkProjectConnections(b *testing.B) {
	const latency = 10 * time.Millisecond
	for _, connections := range []int{1, 4, 16, 32} {
		b.Run(fmt.Sprintf("latency=%v/connections=%d", latency, connections), func(b *testing.B) {
			count := 100 * connections
			newBacklog(b, latency, count, count, envelope.SessionKey{}).project(b, 1, func(c *projector.Config) { c.Connections = connections })
		})
	}
}

// recordedTimelines is timeline as a projection with a record of positions, so that it is written
// in transactions; with shared it also counts the events of all aggregates in one document.
type recordedTimelines struct{ shared bool }

func (recordedTimelines) Name() string { return "recorded" }

func (recordedTimelines) Collections() []projection.Collection {
	return []projection.Collection{{Name: projection.Timeline{}.Collection()}, {Name: "totals"}}
}

func (r recordedTimelines) Project(e projection.Event) ([]projection.Write, error) {
	writes, err := projection.Timeline{}.Project(e)
	if r.shared {
		writes = append(writes, projection.Update("totals", "all", projection.Inc("events", 1)))
	}
	return writes, err
}

// BenchmarkProjectRecorded measures the rate of a projection with a record of positions: 8,000
// aggregates with an event each, in 64 sessions, whose documents are their own or a shared one.
func BenchmarkProjectRecorded(b *testing.B) {
	const aggregates = 8000
	for _, latency := range []time.Duration{0, 2 * time.Millisecond} {
		for _, shared := range []bool{false, true} {
			b.Run(fmt.Sprintf("latency=%v/shared=%v", latency, shared), func(b *testing.B) {
				registry, err := projection.NewRegistry(recordedTimelines{shared})
				require.NoError(b, err)
				newBacklog(b, latency, aggregates, aggregates, envelope.Buckets(64)).run(b, 1, projector.Options{Projections: registry},
					func(c *projector.Config) { c.Projection = "recorded" })
			})
		}
	}
}
