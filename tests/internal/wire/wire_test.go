package wire_test

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.uber.org/goleak"

	"github.com/sluice-cdc/sluice/tests/emulator"
	"github.com/sluice-cdc/sluice/tests/emulator/blob"
	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
	"github.com/sluice-cdc/sluice/tests/internal/stack"
	"github.com/sluice-cdc/sluice/tests/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// onProxy runs a proxy to a stack of its own.
func onProxy(t *testing.T) (*wire.Proxy, *emulator.Stack) {
	t.Helper()
	s := emulator.Start(t, emulator.Options{})
	w, err := wire.Listen(t.Context(), "service", wire.Addrs{
		Mongo: stack.Host(s.Endpoint(emulator.EnvMongo)), ServiceBus: stack.Host(s.Endpoint(emulator.EnvServiceBus)), Blob: stack.Host(s.Endpoint(emulator.EnvBlob)),
	}, wire.Loopback, &wire.Checkpoints{}, nil)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	return w, s
}

func collection(t *testing.T, uri string) *mongo.Collection {
	t.Helper()
	client, err := mongo.Connect(options.Client().ApplyURI(uri).SetRetryWrites(false))
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Disconnect(context.WithoutCancel(t.Context())) })
	return client.Database("shop").Collection("events")
}

// insertOver inserts in the background, over the proxy.
func insertOver(t *testing.T, w *wire.Proxy) (result <-chan error) {
	t.Helper()
	events := collection(t, "mongodb://"+w.Addrs().Mongo+"/?directConnection=true")
	require.NoError(t, events.Database().Client().Ping(t.Context(), nil))
	done := make(chan error, 1)
	go func() {
		_, err := events.InsertOne(t.Context(), bson.D{{Key: "_id", Value: 1}})
		done <- err
	}()
	return done
}

func isInsert(reply bool) func(wire.Unit) bool {
	return func(u wire.Unit) bool { return u.Server == wire.Mongo && u.Name == "insert" && u.Reply == reply }
}

func TestAHeldRequestTakesEffectWhenItIsLetGo(t *testing.T) {
	w, s := onProxy(t)
	trap := wire.NewTrap(isInsert(false))
	w.Arm(trap)
	done := insertOver(t, w)
	<-trap.Sprung()
	require.Same(t, w, trap.By())
	direct := collection(t, s.Endpoint(emulator.EnvMongo))
	n, err := direct.CountDocuments(t.Context(), bson.D{})
	require.NoError(t, err)
	require.Zero(t, n, "the server has it already")
	trap.Release(true)
	require.NoError(t, <-done)
	n, err = direct.CountDocuments(t.Context(), bson.D{})
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
}

func TestALostRequestNeverArrivesAndALostReplyIsOfOneThatDid(t *testing.T) {
	for name, test := range map[string]struct {
		reply bool
		want  int64
	}{"request": {false, 0}, "reply": {true, 1}} {
		t.Run(name, func(t *testing.T) {
			w, s := onProxy(t)
			trap := wire.NewTrap(isInsert(test.reply))
			w.Arm(trap)
			done := insertOver(t, w)
			<-trap.Sprung()
			trap.Release(false)
			require.Error(t, <-done)
			n, err := collection(t, s.Endpoint(emulator.EnvMongo)).CountDocuments(t.Context(), bson.D{})
			require.NoError(t, err)
			require.Equal(t, test.want, n)
		})
	}
}

// A message arrives even if its sender died after sending it. Here the client is closed while the
// wire holds the message.
func TestAHeldMessageOutlivesItsSender(t *testing.T) {
	w, s := onProxy(t)
	client, err := azservicebus.NewClientFromConnectionString(servicebus.ConnectionString(w.Addrs().ServiceBus), nil)
	require.NoError(t, err)
	sender, err := client.NewSender(emulator.Topic, nil)
	require.NoError(t, err)
	send := func(ctx context.Context, id string) error {
		return sender.SendMessage(ctx, &azservicebus.Message{SessionID: &id, MessageID: &id, Body: make([]byte, 1000)}, nil)
	}
	require.NoError(t, send(t.Context(), "a"))
	trap := wire.NewTrap(func(u wire.Unit) bool { return u.Name == "transfer" && !u.Reply && u.Bytes > 1000 })
	w.Arm(trap)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- send(ctx, "b") }()
	<-trap.Sprung()
	cancel()
	require.Error(t, <-done)
	closing, stop := context.WithTimeout(context.WithoutCancel(t.Context()), 100*time.Millisecond)
	defer stop()
	_ = client.Close(closing) // its close waits behind the message
	require.Equal(t, 1, s.ServiceBus.Stats(s.Route.Out()).Active)
	trap.Release(true)
	require.Eventually(t, func() bool { return s.ServiceBus.Stats(s.Route.Out()).Active == 2 }, 20*time.Second, time.Millisecond)
}

func TestLeaseRequestsHaveTheirNames(t *testing.T) {
	w, _ := onProxy(t)
	blobs, err := azblob.NewClientFromConnectionString(blob.ConnectionString(w.Addrs().Blob), nil)
	require.NoError(t, err)
	names := make(chan string, 10)
	trap := wire.NewTrap(func(u wire.Unit) bool {
		if !u.Reply {
			names <- u.Name
		}
		return false
	})
	w.Arm(trap)
	_, err = blobs.CreateContainer(t.Context(), "records", nil)
	require.NoError(t, err)
	_, err = blobs.UploadBuffer(t.Context(), "records", "b.json", []byte("{}"), nil)
	require.NoError(t, err)
	client, err := lease.NewBlobClient(blobs.ServiceClient().NewContainerClient("records").NewBlobClient("b.json"), nil)
	require.NoError(t, err)
	_, err = client.AcquireLease(t.Context(), 15, nil)
	require.NoError(t, err)
	_, err = client.RenewLease(t.Context(), nil)
	require.NoError(t, err)
	_, err = client.ReleaseLease(t.Context(), nil)
	require.NoError(t, err)
	_, err = blobs.DownloadStream(t.Context(), "records", "b.json", nil)
	require.NoError(t, err)
	for _, name := range []string{"other", "write", "acquire", "renew", "release", "read"} {
		require.Equal(t, name, <-names)
	}
	require.Empty(t, names)
}

func TestACutClosesTheConnectionsToOneServer(t *testing.T) {
	proxy, _ := onProxy(t)
	dial := func(addr, request string) net.Conn {
		c, err := net.Dial("tcp", addr)
		require.NoError(t, err)
		t.Cleanup(func() { c.Close() })
		_, err = io.WriteString(c, request)
		require.NoError(t, err)
		_, err = io.ReadFull(c, make([]byte, 8)) // it is connected
		require.NoError(t, err)
		return c
	}
	const sasl, get = "AMQP\x03\x01\x00\x00", "GET / HTTP/1.1\r\nHost: storage\r\n\r\n"
	bus, blobs := dial(proxy.Addrs().ServiceBus, sasl), dial(proxy.Addrs().Blob, get)
	proxy.Cut(wire.ServiceBus)
	_, _ = io.Copy(io.Discard, bus) // until it is closed
	_, err := io.WriteString(blobs, get)
	require.NoError(t, err, "another server")
	proxy.Cut(wire.Blob)
	_, _ = io.Copy(io.Discard, blobs)
	dial(proxy.Addrs().ServiceBus, sasl)
}
