package world

import (
	"cmp"
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/stretchr/testify/require"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/producer/store"
	"github.com/sluice-cdc/sluice/shared/virtualtime"
	"github.com/sluice-cdc/sluice/tests/emulator/blob"
	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
	"github.com/sluice-cdc/sluice/tests/emulator/netpipe"
	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
	"github.com/sluice-cdc/sluice/tests/internal/witness"
)

// The host names of the servers in the world.
const (
	busHost   = "bus:5672"
	mongoHost = "mongo:27017"
	BlobHost  = "blob:10000"
)

// Options are the differences between worlds. The zero value is right for most tests.
type Options struct {
	Mongo           mongo.Options // without a version it acts as one of those that users run
	Bus             servicebus.Options
	Since           string        // the oldest version of MongoDB with the features that the test needs, such as "6.0"; empty is any
	ReplicaSet      string        // why the test needs a replica set instead of a mongos; empty: either will do
	DuplicateWindow time.Duration // the topic's; 0 is ten minutes
	RoundTrip       time.Duration // between the services and Service Bus, which then needs real time: see InVirtualTime
	Patience        time.Duration // how long Eventually waits; 0 is ten minutes
	Poll            time.Duration // how often Eventually checks; 0 is every 10 ms
}

// World is the three embedded servers and the test's own clients, with producers and projectors to
// run on them. Its methods fail the test, and must be called from the test's own goroutine.
type World struct {
	*testing.T
	Bus       *servicebus.Server
	Mongo     *mongo.Server
	Blob      *blob.Server
	BusNet    *netpipe.Listener
	MongoNet  *netpipe.Listener
	BusClient *azservicebus.Client // the test's own, as are the next three
	Sender    *azservicebus.Sender // to Topic
	Client    *driver.Client
	Events    *driver.Collection // what the producers read
	// OperatorMongo is the dialer to MongoDB of an operator's commands.
	OperatorMongo options.ContextDialer
	// OperatorDelay is the round trip of a producer's commands to Blob storage.
	OperatorDelay time.Duration
	// Store is Options.Store of the producers and their commands, for CHECKPOINT_STORE with another
	// name than blob and mongodb.
	Store func(name string) (store.Store, error)
	// Administration is used by a producer's commands to reach the administration of Service Bus;
	// nil disables it.
	Administration *azcore.ClientOptions
	// Inserted is how many events of each aggregate are committed.
	Inserted   map[string]int
	Producers  []*Producer  // all that were started
	Projectors []*Projector // all that were started

	patience, poll time.Duration

	window time.Duration
	mu     sync.Mutex
	// accepted holds what the broker accepted, in its order; guarded by mu.
	accepted []servicebus.Accepted
}

// tokensAreDue is when the SDK has renewed all its tokens of Service Bus. If several goroutines
// open links at once, all but the last one are abandoned, each with a goroutine that sleeps until
// then, finds its client closed and ends (azservicebus v1.11.0, AMQPLinksImpl.Get); a bubble must
// not end before. Without clients and servers, this time costs nothing.
const tokensAreDue = 3 * time.Hour

// InVirtualTime runs f in a world in a bubble of virtual time. It has no round trips: the SDK holds
// mutexes while it waits for the network, and virtual time does not advance while a goroutine waits
// for a mutex.
func InVirtualTime(t *testing.T, o Options, f func(w *World)) {
	t.Helper()
	require.Zero(t, o.RoundTrip, "a round trip needs InRealTime")
	virtualtime.Test(t, func(t *testing.T) {
		defer time.Sleep(tokensAreDue)
		run(t, o, f)
	})
}

// Each is like InVirtualTime for each row of a table, as a subtest of that name.
func Each[Row any](t *testing.T, o Options, rows map[string]Row, f func(w *World, name string, row Row)) {
	t.Helper()
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			InVirtualTime(t, o, func(w *World) { f(w, name, row) })
		})
	}
}

// InRealTime runs f in a world without a bubble.
func InRealTime(t *testing.T, o Options, f func(w *World)) {
	t.Helper()
	virtualtime.Real(t)
	run(t, o, f)
}

func run(t *testing.T, o Options, f func(w *World)) {
	t.Helper()
	likeSomeVersion(t, &o.Mongo, o.Since)
	asSomeTopology(t, &o.Mongo, o.ReplicaSet)
	w := &World{
		T: t, Mongo: mongo.New(o.Mongo), MongoNet: netpipe.Listen(mongoHost), Inserted: map[string]int{},
		patience: cmp.Or(o.Patience, 10*time.Minute), poll: cmp.Or(o.Poll, 50*time.Millisecond), window: cmp.Or(o.DuplicateWindow, 10*time.Minute),
	}
	w.empty(o.Bus)
	w.OperatorMongo = ByName{w.MongoNet}
	stopServers := w.serve(o.RoundTrip)
	defer stopServers()
	w.connect()
	defer func() {
		w.endServices()
		_ = w.BusClient.Close(context.WithoutCancel(t.Context()))
		_ = w.Client.Disconnect(context.WithoutCancel(t.Context()))
	}()
	f(w)
}

// empty creates a Service Bus and a Blob storage without content.
func (w *World) empty(o servicebus.Options) {
	w.Helper()
	bus, err := servicebus.New(entities(w.window), o)
	require.NoError(w, err)
	w.Bus, w.BusNet, w.Blob = bus, netpipe.Listen(busHost), blob.New(blob.Options{Token: "a-token"})
	w.accepted = nil // of a broker that is not served yet
	bus.Observe(func(a servicebus.Accepted) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if bus == w.Bus {
			w.accepted = append(w.accepted, witness.Events(a)...)
		}
	})
}

// serve runs the servers until stop is called, which waits for their end.
func (w *World) serve(roundTrip time.Duration) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.Context())) // the servers outlive the test's own clients
	var servers sync.WaitGroup
	servers.Go(func() {
		var l net.Listener = w.BusNet
		if roundTrip > 0 {
			delayed := netpipe.Delay(w.BusNet, roundTrip)
			defer delayed.(*netpipe.DelayListener).Wait()
			l = delayed
		}
		if err := w.Bus.Run(ctx, l); err != nil {
			w.Errorf("run Service Bus: %v", err)
		}
	})
	servers.Go(func() {
		if err := w.Mongo.Run(ctx, w.MongoNet); err != nil {
			w.Errorf("run MongoDB: %v", err)
		}
	})
	return func() {
		cancel()
		servers.Wait()
	}
}

// MongoURI returns the connection string of the world's MongoDB.
func (w *World) MongoURI() string { return w.Mongo.URI(mongoHost) }

// MongoOptions returns the options of the test's own clients.
func (w *World) MongoOptions() *options.ClientOptions {
	return options.Client().ApplyURI(w.MongoURI()).SetDialer(w.MongoNet)
}

// connect creates the test's own clients.
func (w *World) connect() {
	w.Helper()
	w.connectBus()
	var err error
	w.Client, err = driver.Connect(w.MongoOptions())
	require.NoError(w, err)
	w.Events = w.Client.Database(sourceDatabase).Collection(sourceCollection)
}

func (w *World) connectBus() {
	w.Helper()
	var err error
	w.BusClient, err = azservicebus.NewClientFromConnectionString(servicebus.ConnectionString(busHost), BusOptions(w.BusNet))
	require.NoError(w, err)
	w.Sender, err = w.BusClient.NewSender(Topic, nil)
	require.NoError(w, err)
}

// endServices ends the services that are still running, so that a failed test reports its reason
// and not a deadlocked bubble.
func (w *World) endServices() {
	for _, p := range w.Producers {
		p.kill()
	}
	for _, p := range w.Projectors {
		p.Kill()
	}
}
