package stack_test

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.uber.org/goleak"

	"github.com/sluice-cdc/sluice/tests/emulator"
	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTheServersServeRealClientsWithTheGivenLatency(t *testing.T) {
	const latency = 20 * time.Millisecond
	s, err := emulator.New(t.Context(), emulator.Options{Latency: latency})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	served := make(chan error, 1)
	go func() { served <- s.Run(ctx) }()
	defer func() {
		cancel()
		require.NoError(t, <-served)
	}()
	require.Len(t, s.Env(), 3)

	db, err := mongo.Connect(options.Client().ApplyURI(s.Endpoint(emulator.EnvMongo)))
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Disconnect(context.WithoutCancel(t.Context()))) }()
	require.NoError(t, db.Ping(t.Context(), nil)) // connects
	start := time.Now()
	_, err = db.Database("shop").Collection("events").InsertOne(t.Context(), bson.D{{Key: "a", Value: 1}})
	require.NoError(t, err)
	require.GreaterOrEqual(t, time.Since(start), latency)

	blobs, err := azblob.NewClientFromConnectionString(s.Endpoint(emulator.EnvBlob), nil)
	require.NoError(t, err)
	_, err = blobs.CreateContainer(t.Context(), "sluice", nil)
	require.NoError(t, err)

	bus, err := azservicebus.NewClientFromConnectionString(s.Endpoint(emulator.EnvServiceBus), nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, bus.Close(context.WithoutCancel(t.Context()))) }()
	sender, err := bus.NewSender(s.Route.In(), nil)
	require.NoError(t, err)
	id := "a"
	require.NoError(t, sender.SendMessage(t.Context(), &azservicebus.Message{SessionID: &id, MessageID: &id, Body: []byte("x")}, nil))
	require.Equal(t, 1, s.ServiceBus.Stats(s.Route.Out()).Active)
}

func TestFindRoute(t *testing.T) {
	withSessions := servicebus.Outbound{RequiresSession: true, LockDuration: time.Minute}
	for name, test := range map[string]struct {
		entities servicebus.Config
		want     emulator.Route
		in, out  string
	}{
		"the default": {
			emulator.Entities(),
			emulator.Route{Topic: "changes", Subscription: "projector", LockDuration: 30 * time.Second},
			"changes", "changes/Subscriptions/projector",
		},
		"the first with sessions": {
			servicebus.Config{Topics: []servicebus.Topic{
				{Name: "t1", Subscriptions: []servicebus.Subscription{{Name: "audit"}}},
				{Name: "t2", Subscriptions: []servicebus.Subscription{{Name: "audit"}, {Name: "views", Outbound: withSessions}}},
			}},
			emulator.Route{Topic: "t2", Subscription: "views", LockDuration: time.Minute},
			"t2", "t2/Subscriptions/views",
		},
		"a queue": {
			servicebus.Config{Queues: []servicebus.Queue{{Name: "plain"}, {Name: "q", Outbound: withSessions}}},
			emulator.Route{Queue: "q", LockDuration: time.Minute},
			"q", "q",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := emulator.FindRoute(test.entities)
			require.NoError(t, err)
			require.Equal(t, test.want, got)
			require.Equal(t, test.in, got.In())
			require.Equal(t, test.out, got.Out())
		})
	}
	_, err := emulator.FindRoute(servicebus.Config{Queues: []servicebus.Queue{{Name: "plain"}}})
	require.ErrorIs(t, err, emulator.ErrNoRoute)
}

func TestTheErrorNamesAPortInUse(t *testing.T) {
	var config net.ListenConfig
	other, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	port := other.Addr().(*net.TCPAddr).Port
	_, err = emulator.New(t.Context(), emulator.Options{Ports: emulator.Ports{ServiceBus: port}})
	var taken *emulator.PortError
	require.ErrorAs(t, err, &taken)
	require.Equal(t, port, taken.Port)
	require.ErrorContains(t, err, "another program listens there")
	require.NoError(t, other.Close())

	s, err := emulator.New(t.Context(), emulator.Options{Ports: emulator.Ports{ServiceBus: port}})
	require.NoError(t, err)
	require.Contains(t, s.Endpoint(emulator.EnvServiceBus), fmt.Sprintf("//127.0.0.1:%d", port))
	require.NoError(t, s.Close())
}

func TestANamespaceWithoutSessionsIsServed(t *testing.T) {
	s, err := emulator.New(t.Context(), emulator.Options{ServiceBus: &servicebus.Config{Queues: []servicebus.Queue{{Name: "plain"}}}})
	require.NoError(t, err)
	require.Zero(t, s.Route)
	require.NoError(t, s.Close())
}
