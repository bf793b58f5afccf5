package stack_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.uber.org/goleak"

	"github.com/sluice-cdc/sluice/tests/emulator"
	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTheServersAnswerWithTheGivenLatency(t *testing.T) {
	const latency = 20 * time.Millisecond
	s := emulator.Start(t, emulator.Options{Latency: latency})
	db, err := mongo.Connect(options.Client().ApplyURI(s.Endpoint(emulator.EnvMongo)))
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Disconnect(context.WithoutCancel(t.Context()))) }()
	require.NoError(t, db.Ping(t.Context(), nil)) // connects
	start := time.Now()
	_, err = db.Database("shop").Collection("events").InsertOne(t.Context(), bson.D{{Key: "a", Value: 1}})
	require.NoError(t, err)
	require.GreaterOrEqual(t, time.Since(start), latency)
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

func TestANamespaceWithoutSessionsIsServed(t *testing.T) {
	s, err := emulator.New(t.Context(), emulator.Options{ServiceBus: &servicebus.Config{Queues: []servicebus.Queue{{Name: "plain"}}}})
	require.NoError(t, err)
	require.Zero(t, s.Route)
	require.NoError(t, s.Close())
}
