package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/shared/azure"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/shared/virtualtime"
	"github.com/sluice-cdc/sluice/tests/emulator/blob"
	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
	"github.com/sluice-cdc/sluice/tests/emulator/netpipe"
	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
)

const (
	blobHost    = "blob:10000"
	partitioned = "partitioned" // a queue
	spacious    = "spacious"    // a queue that takes messages of 4 MB
)

// producerWorld is the three embedded servers, in memory and in virtual time, with producers to run on them.
type producerWorld struct {
	*testing.T
	bus      *servicebus.Server
	mongo    *mongo.Server
	blob     *blob.Server
	busNet   *netpipe.Listener
	mongoNet *netpipe.Listener
	desk     options.ContextDialer // how an operator's commands reach MongoDB
	events   *driver.Collection

	inserted map[string]int

	mu       sync.Mutex
	accepted []servicebus.Accepted // what the broker took, in its order
}

// inProducerWorld runs f in a bubble of virtual time.
func inProducerWorld(t *testing.T, mongoOptions mongo.Options, f func(w *producerWorld)) {
	t.Helper()
	virtualtime.Test(t, func(t *testing.T) {
		bus, err := servicebus.New(servicebus.Config{Queues: []servicebus.Queue{{
			Name: partitioned, Inbound: servicebus.Inbound{EnablePartitioning: true}, Outbound: servicebus.Outbound{RequiresSession: true},
		}, {
			Name: spacious, Inbound: servicebus.Inbound{MaxMessageBytes: 4 << 20}, Outbound: servicebus.Outbound{RequiresSession: true},
		}}, Topics: []servicebus.Topic{{
			Name:    topic,
			Inbound: servicebus.Inbound{RequiresDuplicateDetection: true, DuplicateDetectionWindow: 10 * time.Minute},
			Subscriptions: []servicebus.Subscription{{Name: subscription, Outbound: servicebus.Outbound{
				RequiresSession: true, LockDuration: lockDuration, MaxDeliveryCount: 3,
			}}},
		}}}, servicebus.Options{})
		require.NoError(t, err)
		blobs := blob.New(blob.Options{Token: "a-token"})
		w := &producerWorld{
			T: t, bus: bus, mongo: mongo.New(mongoOptions), blob: blobs,
			busNet: netpipe.Listen("bus:5672"), mongoNet: netpipe.Listen("mongo:27017"), inserted: map[string]int{},
		}
		bus.Observe(func(a servicebus.Accepted) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.accepted = append(w.accepted, a)
		})
		ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context())) // the servers outlive the test's own clients
		var servers sync.WaitGroup
		servers.Go(func() {
			if err := w.bus.Run(ctx, w.busNet); err != nil {
				t.Errorf("run Service Bus: %v", err)
			}
		})
		servers.Go(func() {
			if err := w.mongo.Run(ctx, w.mongoNet); err != nil {
				t.Errorf("run MongoDB: %v", err)
			}
		})
		client, err := driver.Connect(options.Client().ApplyURI(mongo.URI("mongo:27017")).SetDialer(w.mongoNet))
		require.NoError(t, err)
		w.desk, w.events = byName{w.mongoNet}, client.Database("shop").Collection("events")
		defer func() {
			_ = client.Disconnect(context.WithoutCancel(t.Context()))
			cancel()
			servers.Wait()
			time.Sleep(tokensAreDue)
		}()
		f(w)
	})
}

// dropMongo closes every connection to MongoDB, and waits until the test's own client is over it: the driver clears its pool
// when the monitor notices, and what is written under its hands then fails for good.
func (w *producerWorld) dropMongo() {
	w.Helper()
	w.mongo.DropConnections()
	virtualtime.Wait()
	w.eventually("the test's own client is connected again", func() bool { return w.events.FindOne(w.Context(), bson.D{}).Err() == nil })
}

// insert commits the next event of an aggregate.
func (w *producerWorld) insert(aggregate string) {
	w.Helper()
	w.inserted[aggregate]++
	w.insertDocument(bson.D{
		{Key: "aggregateId", Value: aggregate}, {Key: "version", Value: w.inserted[aggregate]}, {Key: "type", Value: "Counted"},
	})
}

func (w *producerWorld) insertDocument(document any) {
	w.Helper()
	w.insertInto(w.events, document)
}

func (w *producerWorld) insertInto(collection *driver.Collection, document any) {
	w.Helper()
	_, err := collection.InsertOne(w.Context(), document)
	require.NoError(w, err)
}

// insertMany commits n events of a few aggregates, in one command each hundred.
func (w *producerWorld) insertMany(n, aggregates int) {
	w.Helper()
	var documents []any
	for i := range n {
		aggregate := fmt.Sprintf("a%d", i%aggregates)
		w.inserted[aggregate]++
		documents = append(documents, bson.D{
			{Key: "aggregateId", Value: aggregate}, {Key: "version", Value: w.inserted[aggregate]}, {Key: "type", Value: "Counted"},
		})
		if len(documents) == 100 || i == n-1 {
			_, err := w.events.InsertMany(w.Context(), documents)
			require.NoError(w, err)
			documents = nil
		}
	}
}

// took is what the broker took, duplicates included.
func (w *producerWorld) took() []servicebus.Accepted {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clip(w.accepted)
}

// total is the number of events inserted.
func (w *producerWorld) total() (n int) {
	for _, versions := range w.inserted {
		n += versions
	}
	return n
}

// published waits until the broker has taken every event, and judges: per aggregate every version once, in order (G1,
// G2), no position lower than the one before, and what was sent again dropped by its message id (G3).
func (w *producerWorld) published() {
	w.Helper()
	w.eventually("everything inserted is published", func() bool { return w.bus.Stats(topic).Accepted >= w.total() })
	w.judge()
}

func (w *producerWorld) judge() {
	w.Helper()
	reached, positions := map[string]int{}, map[string]string{}
	for _, a := range w.took() {
		if a.Duplicate {
			continue // the broker recognised it: same message id, no second delivery
		}
		aggregate := a.Properties["cloudEvents_subject"].(string)
		reached[aggregate]++
		require.EqualValues(w, reached[aggregate], a.Properties["version"], "aggregate %s", aggregate)
		position := a.Properties[envelope.PropPosition].(string)
		require.Less(w, positions[aggregate], position)
		positions[aggregate] = position
	}
	require.Equal(w, w.inserted, reached)
}

// record is the checkpoint blob as anybody can read it.
type record struct {
	Epoch      int64          `json:"epoch"`
	Leader     string         `json:"leader"`
	SessionKey string         `json:"sessionKey"`
	Position   string         `json:"position"`
	Published  int64          `json:"published"`
	Token      map[string]any `json:"resumeToken"`
}

func (w *producerWorld) checkpoint() (r record) {
	w.Helper()
	return w.checkpointOf("shop.events")
}

func (w *producerWorld) checkpointOf(stream string) (r record) {
	w.Helper()
	client, err := azblob.NewClientFromConnectionString(blob.ConnectionString(blobHost), blobTransport(w.blob.Transport()))
	require.NoError(w, err)
	response, err := client.DownloadStream(w.Context(), "sluice", stream+".json", nil)
	if err != nil {
		return record{}
	}
	defer response.Body.Close()
	require.NoError(w, json.NewDecoder(response.Body).Decode(&r))
	return r
}

func (w *producerWorld) eventually(what string, ok func() bool) {
	w.Helper()
	deadline := time.After(10 * time.Minute)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			w.Fatalf("not in ten minutes of virtual time: %s; topic: %+v", what, w.bus.Stats(topic))
		}
	}
}

// leads waits until an instance leads and its first checkpoint with a token is written.
func (w *producerWorld) leads(instance string) {
	w.Helper()
	w.eventually(instance+" leads", func() bool {
		r := w.checkpoint()
		return r.Leader == instance && r.Token != nil
	})
}

// runningProducer is a producer in this process, on connections of its own.
type runningProducer struct {
	w                            *producerWorld
	stop                         context.CancelFunc
	done                         chan error
	log                          *recorder
	busPlug, mongoPlug, blobPlug *plug
}

func (w *producerWorld) config() producer.Config {
	return producer.Config{
		MongoURI: mongo.URI("mongo:27017"), Database: "shop", Collection: "events", Stream: "shop.events",
		ServiceBus: azure.ServiceBus{ConnectionString: servicebus.ConnectionString("bus:5672")}, Topic: topic,
		Blob: azure.Blob{ConnectionString: blob.ConnectionString(blobHost)}, Container: "sluice",
		StartFrom: "latest", OnHistoryLost: "fail",
		Operations:      []envelope.Operation{envelope.Insert, envelope.Update, envelope.Replace, envelope.Delete},
		AggregateIDPath: "aggregateId", EventTypePath: "type", VersionPath: "version",
		FullDocument: "updateLookup", BeforeChange: "whenAvailable",
		LeaseDuration: 15 * time.Second, HeartbeatInterval: time.Second, FenceAfter: 4 * time.Second,
		TakeoverAfter: 6 * time.Second, StandbyPoll: time.Second, LeaseTakeover: "break",
		PublishLanes: 4, PublishLanesMax: 16, BatchScope: "session", BatchMessages: 100, MessageFormat: "json",
		OnOversize: "fail", ClaimContainer: "claim-checks", MaxInFlightEvents: 1000, MaxInFlightBytes: 1 << 20, StallAfter: time.Minute, ShutdownTimeout: 20 * time.Second,
	}
}

// start runs a producer; change adjusts its settings.
func (w *producerWorld) start(instance string, change func(*producer.Config, *producer.Options)) *runningProducer {
	w.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	p := &runningProducer{
		w: w, stop: cancel, done: make(chan error, 1), log: &recorder{},
		busPlug: &plug{}, mongoPlug: &plug{}, blobPlug: &plug{},
	}
	config, o := w.config(), p.options(instance)
	require.NoError(w, config.Validate())
	if change != nil {
		change(&config, &o)
	}
	go func() { p.done <- producer.Run(ctx, config, o) }()
	return p
}

// startStreams runs a producer of several streams.
func (w *producerWorld) startStreams(instance string, configs []producer.Config) *runningProducer {
	w.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	p := &runningProducer{
		w: w, stop: cancel, done: make(chan error, 1), log: &recorder{},
		busPlug: &plug{}, mongoPlug: &plug{}, blobPlug: &plug{},
	}
	go func() { p.done <- producer.RunStreams(ctx, configs, p.options(instance)) }()
	return p
}

// options are those of a producer on the connections of its own.
func (p *runningProducer) options(instance string) producer.Options {
	w := p.w
	return producer.Options{
		Logger:   slog.New(slog.NewJSONHandler(p.log, nil)),
		Instance: instance,
		ServiceBus: &azservicebus.ClientOptions{
			NewWebSocketConn: func(ctx context.Context, _ azservicebus.NewWebSocketConnArgs) (net.Conn, error) {
				return p.busPlug.dial(ctx, w.busNet)
			},
		},
		Blob:  blobTransport(blobThrough{p.blobPlug, w.blob.Transport()}),
		Mongo: func(o *options.ClientOptions) { o.SetDialer(dialer{p.mongoPlug, w.mongoNet}) },
	}
}

// end asks the producer to stop and waits for it.
func (p *runningProducer) end() {
	p.w.Helper()
	p.stop()
	require.NoError(p.w, <-p.done)
}

// failed waits until the producer has ended by itself, and gives its error.
func (p *runningProducer) failed() (err error) {
	p.w.Helper()
	p.w.eventually("the producer ends by itself", func() bool {
		select {
		case err = <-p.done:
			return true
		default:
			return false
		}
	})
	require.Error(p.w, err)
	return err
}

// vanish cuts the producer off from everything at once, as a process that is killed; end still has to be called.
func (p *runningProducer) vanish() {
	p.busPlug.pull()
	p.mongoPlug.pull()
	p.blobPlug.pull()
}

func (p *runningProducer) comeBack() {
	p.busPlug.plugIn()
	p.mongoPlug.plugIn()
	p.blobPlug.plugIn()
}

func blobTransport(t interface {
	Do(*http.Request) (*http.Response, error)
},
) *azblob.ClientOptions {
	o := &azblob.ClientOptions{}
	o.Transport = t
	return o
}

// blobThrough is a way to Blob storage that can be pulled: then requests hang until their context ends.
type blobThrough struct {
	plug *plug
	to   *blob.Transport
}

func (p blobThrough) Do(r *http.Request) (*http.Response, error) {
	p.plug.mu.Lock()
	pulled := p.plug.pulled
	p.plug.mu.Unlock()
	if pulled {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	return p.to.Do(r)
}
