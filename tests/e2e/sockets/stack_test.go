package sockets_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"regexp"
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
	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/shared/virtualtime"
	"github.com/sluice-cdc/sluice/tests/emulator/azurite"
	"github.com/sluice-cdc/sluice/tests/internal/environ"
	"github.com/sluice-cdc/sluice/tests/internal/stack"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// realStack is the stack over sockets, with a real MongoDB if one is configured.
type realStack struct {
	*testing.T
	stack  *stack.Stack
	mongo  string // the address of MongoDB
	client *driver.Client
	events *driver.Collection
	model  *driver.Database // the read model
	blobs  *azblob.Client
	// versions has how many events of each aggregate are committed.
	versions map[string]int
	settings map[string]string // of the services and commands
}

// sideBySide runs a test that waits more than it works beside the others, unless they share a real
// MongoDB.
func sideBySide(t *testing.T) {
	if !stack.Theirs() {
		t.Parallel()
	}
}

func newRealStack(t *testing.T, withAzurite bool) *realStack {
	t.Helper()
	virtualtime.Real(t)
	s, err := stack.New(t.Context(), stack.Options{Azurite: withAzurite})
	if errors.Is(err, azurite.ErrNotInstalled) && os.Getenv("CI") != "true" {
		t.Skipf("without Azurite: %v", err)
	}
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context())) // the servers outlive the test's own clients
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := s.Run(ctx); err != nil {
			t.Errorf("run the stack: %v", err)
		}
	})
	uri, _ := stack.MongoDB(t, s.Stack)
	client, err := driver.Connect(options.Client().ApplyURI(uri))
	require.NoError(t, err)
	blobs, err := azblob.NewClientFromConnectionString(s.Endpoint(stack.EnvBlob), nil)
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = client.Disconnect(ctx)
		cancel()
		serving.Wait()
	})
	return &realStack{
		T: t, stack: s, mongo: uri, client: client, events: client.Database("shop").Collection("events"), model: client.Database(world.ReadModel),
		blobs: blobs, versions: map[string]int{},
		settings: map[string]string{
			stack.EnvMongo: uri, stack.EnvServiceBus: s.Endpoint(stack.EnvServiceBus), stack.EnvBlob: s.Endpoint(stack.EnvBlob),
			"MONGODB_DATABASE": "shop", "MONGODB_COLLECTION": "events", "OPERATIONS": "insert", "SERVICE_BUS_TOPIC": stack.Topic,
			"HTTP_ADDR": "127.0.0.1:0", "HEARTBEAT_INTERVAL": "200ms", "STANDBY_POLL": "200ms", "FENCE_AFTER": "800ms", "TAKEOVER_AFTER": "1500ms",
			"SERVICE_BUS_SUBSCRIPTION": stack.Subscription, "READ_MODEL_DATABASE": world.ReadModel, "SOURCE_DATABASE": "shop", "SOURCE_COLLECTION": "events",
		},
	}
}

// configured returns what both services read in an environment with the settings.
func (s *realStack) configured() (producing producer.Config, projecting projector.Config) {
	s.Helper()
	producing, err := environ.Load(s.settings, producer.LoadConfig)
	require.NoError(s, err)
	projecting, err = environ.Load(s.settings, projector.LoadConfig)
	require.NoError(s, err)
	return producing, projecting
}

// run runs the producer a and a projector until stop is called, which requires that neither fails.
func (s *realStack) run(producing producer.Config, ofProducer producer.Options, projecting projector.Config, ofProjector projector.Options) (stop func()) {
	s.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.Context()))
	ofProducer.Instance, ofProjector.Instance = "a", "p"
	var services sync.WaitGroup
	var failed [2]error
	services.Go(func() { failed[0] = producer.Run(ctx, producing, ofProducer) })
	services.Go(func() { failed[1] = projector.Run(ctx, projecting, ofProjector) })
	stop = sync.OnceFunc(func() {
		cancel()
		services.Wait()
		require.NoError(s, errors.Join(failed[:]...))
	})
	s.Cleanup(stop)
	return stop
}

// project runs a projector with the settings.
func (s *realStack) project() (stop func()) {
	s.Helper()
	_, config := s.configured()
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.Context()))
	var running sync.WaitGroup
	running.Go(func() {
		if err := projector.Run(ctx, config, projector.Options{Logger: slog.New(slog.DiscardHandler)}); err != nil {
			s.Error(err)
		}
	})
	stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
	s.Cleanup(stop)
	return stop
}

// get returns the answer of a service's port.
func (s *realStack) get(addr, path string) (code int, body []byte, err error) {
	s.Helper()
	request, err := http.NewRequestWithContext(s.Context(), http.MethodGet, "http://"+addr+path, http.NoBody)
	require.NoError(s, err)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	body, err = io.ReadAll(response.Body)
	return response.StatusCode, body, err
}

var served = regexp.MustCompile(`"serving health checks".*?"addr":"([^"]+)"`)

// serving waits until the service that writes this log serves, and returns the address.
func (s *realStack) serving(log *world.Recorder) (addr string) {
	s.Helper()
	s.until("the service logs its address", func() bool {
		found := served.FindStringSubmatch(log.Text())
		if found != nil {
			addr = found[1]
		}
		return found != nil
	})
	return addr
}

// recorded returns a logger to a new recorder.
func recorded() (*world.Recorder, *slog.Logger) {
	log := &world.Recorder{}
	return log, slog.New(slog.NewJSONHandler(log, nil))
}

// realProducer is a producer over sockets.
type realProducer struct {
	*testing.T
	stop    context.CancelFunc
	done    chan error
	log     *world.Recorder
	network *world.Plug // its connection to everything
}

// start runs a producer with the settings.
func (s *realStack) start(instance string) *realProducer { return s.startOn(instance, &world.Plug{}) }

// startOn starts a producer on a network that can be cut.
func (s *realStack) startOn(instance string, network *world.Plug) *realProducer {
	s.Helper()
	config, _ := s.configured()
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.Context()))
	p := &realProducer{T: s.T, stop: cancel, done: make(chan error, 1), log: &world.Recorder{}, network: network}
	go func() {
		p.done <- producer.Run(ctx, config, producer.Options{
			Logger: slog.New(slog.NewJSONHandler(p.log, nil)), Instance: instance,
			Blob:       world.BlobOptions(p.network.Transport(http.DefaultClient)),
			ServiceBus: world.BusOptions(p.network.Dialer(s.bus())),
			Mongo:      world.MongoOptions(p.network.Dialer(&net.Dialer{})),
		})
	}()
	s.Cleanup(func() {
		p.network.PlugIn()
		cancel()
		if s.Failed() {
			s.Log(instance, p.log.Text())
		}
	})
	return p
}

// end stops the producer, and requires that it ends without an error.
func (p *realProducer) end() {
	p.Helper()
	p.stop()
	require.NoError(p, <-p.done)
}

// bus returns a dialer to Service Bus, whatever address a client uses.
func (s *realStack) bus() options.ContextDialer {
	return address(stack.Host(s.stack.Endpoint(stack.EnvServiceBus)))
}

// address is a dialer to a fixed address.
type address string

func (a address) DialContext(ctx context.Context, _, _ string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", string(a))
}

// until polls for a condition that no event announces.
func (s *realStack) until(what string, ok func() bool) {
	s.Helper()
	deadline := time.After(30 * time.Second)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			s.Fatalf("not in 30 s: %s; the checkpoint is %+v", what, s.checkpoint())
		}
	}
}

func (s *realStack) checkpoint() world.CheckpointRecord {
	s.Helper()
	return world.ReadCheckpoint(s.T, s.blobs, "shop.events")
}

func (s *realStack) leads(instance string) {
	s.Helper()
	s.until(instance+" leads", func() bool { r := s.checkpoint(); return r.Leader == instance && r.Token != nil })
}

func (s *realStack) insert(n int) {
	s.Helper()
	for range n {
		s.versions["one"]++
		_, err := s.events.InsertOne(s.Context(), bson.D{{Key: "aggregateId", Value: "one"}, {Key: "version", Value: s.versions["one"]}})
		require.NoError(s, err)
	}
}

// commit inserts n events of a few aggregates in turn, in commands of up to 500. The driver retries
// a command once, and waits for a primary.
func (s *realStack) commit(n, aggregates int) {
	s.Helper()
	documents := make([]any, n)
	for i := range documents {
		aggregate := fmt.Sprintf("a%02d", i%aggregates)
		s.versions[aggregate]++
		documents[i] = bson.D{
			{Key: "aggregateId", Value: aggregate},
			{Key: "version", Value: s.versions[aggregate]},
			{Key: "type", Value: "Counted"},
			{Key: "occurredAt", Value: fmt.Sprint(aggregate, "@", s.versions[aggregate])},
		}
	}
	for command := range slices.Chunk(documents, 500) {
		_, err := s.events.InsertMany(s.Context(), command)
		require.NoError(s, err)
	}
}

// holds reports whether a collection of the read model has each event once.
func (s *realStack) holds(collection string) bool {
	counted, err := world.CountedIn(s.Context(), s.model.Collection(collection))
	return err == nil && maps.Equal(counted, s.versions)
}

// received receives every message of the one session and checks it: each version once, in order,
// epochs never falling.
func (s *realStack) received() (epochs []int64) {
	s.Helper()
	client, err := azservicebus.NewClientFromConnectionString(s.stack.Endpoint(stack.EnvServiceBus), nil)
	require.NoError(s, err)
	defer func() { _ = client.Close(context.Background()) }()
	session, err := client.AcceptSessionForSubscription(s.Context(), stack.Topic, stack.Subscription, "one", nil)
	require.NoError(s, err)
	version, sent := int64(0), s.versions["one"]
	for version < int64(sent) {
		// At most as many as there are: what arrived after the call had ended would be released by
		// the SDK, and overtaken by what follows.
		left := sent - int(version)
		messages, err := session.ReceiveMessages(s.Context(), left, &azservicebus.ReceiveMessagesOptions{TimeAfterFirstMessage: time.Minute})
		require.NoError(s, err)
		for _, m := range messages {
			change, err := envelope.Decode(m)
			require.NoError(s, err)
			version++
			require.Equal(s, version, change.Version)
			epochs = append(epochs, change.Epoch)
			require.NoError(s, session.CompleteMessage(s.Context(), m, nil))
		}
	}
	require.IsNonDecreasing(s, epochs)
	return epochs
}
