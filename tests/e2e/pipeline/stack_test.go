package pipeline_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
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
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/shared/virtualtime"
	"github.com/sluice-cdc/sluice/tests/emulator/azurite"
	"github.com/sluice-cdc/sluice/tests/internal/stack"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// realStack is the stack over sockets, with a real MongoDB if one is configured.
type realStack struct {
	*testing.T
	stack  *stack.Stack
	mongo  string // the address of MongoDB
	events *driver.Collection
	blobs  *azblob.Client
	sent   int
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
	return &realStack{T: t, stack: s, mongo: uri, events: client.Database("shop").Collection("events"), blobs: blobs}
}

func (s *realStack) settings() map[string]string {
	return map[string]string{
		stack.EnvMongo: s.mongo, stack.EnvServiceBus: s.stack.Endpoint(stack.EnvServiceBus),
		stack.EnvBlob:      s.stack.Endpoint(stack.EnvBlob),
		"MONGODB_DATABASE": "shop", "MONGODB_COLLECTION": "events", "OPERATIONS": "insert", "SERVICE_BUS_TOPIC": stack.Topic,
		"HTTP_ADDR": "127.0.0.1:0", "HEARTBEAT_INTERVAL": "200ms", "STANDBY_POLL": "200ms", "FENCE_AFTER": "800ms", "TAKEOVER_AFTER": "1500ms",
	}
}

// realProducer is a producer over sockets.
type realProducer struct {
	stop    context.CancelFunc
	done    chan error
	log     *world.Recorder
	network *world.Plug // its connection to everything
}

// start runs a producer configured by the environment, as in production.
func (s *realStack) start(instance string) *realProducer { return s.startOn(instance, &world.Plug{}) }

// startOn starts a producer on a network that can be cut.
func (s *realStack) startOn(instance string, network *world.Plug) *realProducer {
	s.Helper()
	for k, v := range s.settings() {
		s.Setenv(k, v)
	}
	config, err := producer.LoadConfig()
	require.NoError(s, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.Context()))
	p := &realProducer{stop: cancel, done: make(chan error, 1), log: &world.Recorder{}, network: network}
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
			s.Fatalf("not in 30 s: %s; the checkpoint says %+v", what, s.checkpoint())
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
		s.sent++
		_, err := s.events.InsertOne(s.Context(), bson.D{{Key: "aggregateId", Value: "one"}, {Key: "version", Value: s.sent}})
		require.NoError(s, err)
	}
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
	version := int64(0)
	for version < int64(s.sent) {
		// At most as many as there are: what arrived after the call had ended would be released by
		// the SDK, and overtaken by what follows.
		left := s.sent - int(version)
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
