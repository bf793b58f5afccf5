package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/tests/internal/azurite"
	"github.com/sluice-cdc/sluice/tests/internal/stack"
)

// The tests of this file run over sockets and in real time, because Azurite does: once against the embedded blob server
// and once against Azurite. The times of leadership are as short as the configuration allows.

func onEveryBlobStore(t *testing.T, test func(t *testing.T, s *realStack)) {
	t.Helper()
	for name, withAzurite := range map[string]bool{"embedded": false, "Azurite": true} {
		t.Run(name, func(t *testing.T) { test(t, newRealStack(t, withAzurite)) })
	}
}

// realStack is the stack over sockets.
type realStack struct {
	*testing.T
	stack  *stack.Stack
	events *driver.Collection
	blobs  *azblob.Client
	sent   int
}

func newRealStack(t *testing.T, withAzurite bool) *realStack {
	t.Helper()
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
	client, err := driver.Connect(options.Client().ApplyURI(s.Endpoint(stack.EnvMongo)))
	require.NoError(t, err)
	blobs, err := azblob.NewClientFromConnectionString(s.Endpoint(stack.EnvBlob), nil)
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = client.Disconnect(ctx)
		cancel()
		serving.Wait()
	})
	return &realStack{T: t, stack: s, events: client.Database("shop").Collection("events"), blobs: blobs}
}

func (s *realStack) settings() map[string]string {
	return map[string]string{
		stack.EnvMongo: s.stack.Endpoint(stack.EnvMongo), stack.EnvServiceBus: s.stack.Endpoint(stack.EnvServiceBus),
		stack.EnvBlob:      s.stack.Endpoint(stack.EnvBlob),
		"MONGODB_DATABASE": "shop", "MONGODB_COLLECTION": "events", "SERVICE_BUS_TOPIC": stack.Topic,
		"HTTP_ADDR": "127.0.0.1:0", "HEARTBEAT_INTERVAL": "200ms", "STANDBY_POLL": "200ms", "FENCE_AFTER": "800ms", "TAKEOVER_AFTER": "1500ms",
	}
}

// start runs a producer configured by the environment, as in production. Its gate cuts it off.
func (s *realStack) start(instance string) (p *runningProducer, g *gate) {
	s.Helper()
	for k, v := range s.settings() {
		s.Setenv(k, v)
	}
	config, err := producer.LoadConfig()
	require.NoError(s, err)
	g = &gate{}
	p = &runningProducer{done: make(chan error, 1), log: &recorder{}}
	ctx, cancel := context.WithCancel(context.Background())
	p.stop = cancel
	blobOptions := &azblob.ClientOptions{}
	blobOptions.Transport = g
	go func() {
		p.done <- producer.Run(ctx, config, producer.Options{
			Logger: slog.New(slog.NewJSONHandler(p.log, nil)), Instance: instance, Blob: blobOptions,
			ServiceBus: &azservicebus.ClientOptions{
				NewWebSocketConn: func(ctx context.Context, a azservicebus.NewWebSocketConnArgs) (net.Conn, error) {
					return g.DialContext(ctx, "tcp", stack.Host(s.stack.Endpoint(stack.EnvServiceBus)))
				},
			},
			Mongo: func(o *options.ClientOptions) { o.SetDialer(g) },
		})
	}()
	s.Cleanup(func() {
		g.set(true)
		cancel()
		if s.Failed() {
			s.Log(instance, p.log.text())
		}
	})
	return p, g
}

// gate is a producer's way to the network.
type gate struct {
	mu    sync.Mutex
	shut  bool
	conns []net.Conn
}

// set opens or shuts the gate; shutting cuts what passes through.
func (g *gate) set(open bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = !open
	if g.shut {
		for _, c := range g.conns {
			_ = c.Close()
		}
		g.conns = nil
	}
}

func (g *gate) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut {
		return nil, net.ErrClosed
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, network, addr)
	if err == nil {
		g.conns = append(g.conns, c)
	}
	return c, err
}

// Do hands a request to storage on; while the gate is shut it hangs until its context ends.
func (g *gate) Do(r *http.Request) (*http.Response, error) {
	g.mu.Lock()
	shut := g.shut
	g.mu.Unlock()
	if shut {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	return http.DefaultClient.Do(r)
}

// until polls for what no event announces.
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

func (s *realStack) checkpoint() (r record) {
	s.Helper()
	response, err := s.blobs.DownloadStream(s.Context(), "sluice", "shop.events.json", nil)
	if err != nil {
		return record{}
	}
	defer response.Body.Close()
	require.NoError(s, json.NewDecoder(response.Body).Decode(&r))
	return r
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

// received takes every message of the one session and judges it: each version once, in order, epochs never falling.
func (s *realStack) received() (epochs []int64) {
	s.Helper()
	client, err := azservicebus.NewClientFromConnectionString(s.stack.Endpoint(stack.EnvServiceBus), nil)
	require.NoError(s, err)
	defer func() { _ = client.Close(context.Background()) }()
	session, err := client.AcceptSessionForSubscription(s.Context(), stack.Topic, stack.Subscription, "one", nil)
	require.NoError(s, err)
	version := int64(0)
	for version < int64(s.sent) {
		// As many as there are: what came after the call had ended, the SDK would give back, to be overtaken by what follows it.
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

func TestG1G2G4FailoverOnEveryBlobStore(t *testing.T) {
	onEveryBlobStore(t, func(t *testing.T, s *realStack) {
		a, gateOfA := s.start("a")
		s.leads("a")
		b, _ := s.start("b")
		s.insert(50)
		s.until("all is in the checkpoint", func() bool { return s.checkpoint().Published == 50 })

		s.insert(25)
		gateOfA.set(false) // a vanishes, perhaps in the middle of it
		s.insert(25)
		s.leads("b")
		s.until("all is in the checkpoint", func() bool { return s.checkpoint().Published == 100 })
		require.EqualValues(t, 2, s.checkpoint().Epoch)

		gateOfA.set(true) // a comes back and stands by
		s.insert(10)
		b.stop()
		require.NoError(t, <-b.done)
		s.leads("a")
		s.insert(10)
		s.until("all is in the checkpoint", func() bool { return s.checkpoint().Published == 120 })
		require.EqualValues(t, 3, s.checkpoint().Epoch)
		a.stop()
		require.NoError(t, <-a.done)

		epochs := s.received()
		require.EqualValues(t, 1, epochs[0])
		require.EqualValues(t, 3, epochs[len(epochs)-1])
	})
}

// G4: the lease guards the very blob that holds the checkpoint, so that nobody else can write it while somebody leads.
func TestG4CheckpointIsLeasedOnEveryBlobStore(t *testing.T) {
	onEveryBlobStore(t, func(t *testing.T, s *realStack) {
		a, _ := s.start("a")
		s.leads("a")
		checkpoint := s.blobs.ServiceClient().NewContainerClient("sluice").NewBlockBlobClient("shop.events.json")

		_, err := checkpoint.UploadBuffer(t.Context(), []byte("{}"), nil)
		require.True(t, bloberror.HasCode(err, bloberror.LeaseIDMissing), "%v", err)
		_, err = checkpoint.Delete(t.Context(), nil)
		require.True(t, bloberror.HasCode(err, bloberror.LeaseIDMissing), "%v", err)
		stranger, err := lease.NewBlobClient(checkpoint, nil)
		require.NoError(t, err)
		_, err = stranger.AcquireLease(t.Context(), 15, nil)
		require.True(t, bloberror.HasCode(err, bloberror.LeaseAlreadyPresent), "%v", err)

		// A heartbeat changes the ETag, which is what standbys watch.
		etag := func() azcore.ETag {
			properties, err := checkpoint.GetProperties(t.Context(), nil)
			require.NoError(t, err)
			return *properties.ETag
		}
		first := etag()
		s.until("a heartbeat", func() bool { return etag() != first })

		a.stop()
		require.NoError(t, <-a.done)
		properties, err := checkpoint.GetProperties(t.Context(), nil)
		require.NoError(t, err)
		require.Equal(t, lease.StateTypeAvailable, *properties.LeaseState, "released, and not deleted: the epoch stays")
		require.EqualValues(t, 1, s.checkpoint().Epoch)

		b, _ := s.start("b")
		s.leads("b")
		require.EqualValues(t, 2, s.checkpoint().Epoch)
		b.stop()
		require.NoError(t, <-b.done)
	})
}

// G4: a leader whose lease was broken and taken by somebody else is refused at its next write, and says so.
func TestG4ALeaderWithoutItsLeaseStepsDownOnEveryBlobStore(t *testing.T) {
	onEveryBlobStore(t, func(t *testing.T, s *realStack) {
		a, _ := s.start("a")
		s.leads("a")
		checkpoint := s.blobs.ServiceClient().NewContainerClient("sluice").NewBlockBlobClient("shop.events.json")
		stranger, err := lease.NewBlobClient(checkpoint, nil)
		require.NoError(t, err)
		atOnce := int32(0)
		_, err = stranger.BreakLease(t.Context(), &lease.BlobBreakOptions{BreakPeriod: &atOnce})
		require.NoError(t, err)
		_, err = stranger.AcquireLease(t.Context(), 15, nil)
		if !bloberror.HasCode(err, bloberror.LeaseAlreadyPresent) { // unless a was back before the stranger came
			require.NoError(t, err)
			s.until("a stands by", func() bool { return strings.Contains(a.log.text(), "leadership ended, standing by") })
			_, err = stranger.ReleaseLease(t.Context(), nil)
			require.NoError(t, err)
		}
		s.until("a leads again", func() bool { return s.checkpoint().Epoch == 2 })
		a.stop()
		require.NoError(t, <-a.done)
	})
}
