package app_test

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/tests/emulator"
	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
	"github.com/sluice-cdc/sluice/tests/emulator/netpipe"
	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
)

// One call starts all three servers.
func TestOrdersArriveInMongoDB(t *testing.T) {
	servers := emulator.Start(t, emulator.Options{})
	client, err := driver.Connect(options.Client().ApplyURI(servers.Endpoint(emulator.EnvMongo)))
	require.NoError(t, err)
	defer client.Disconnect(context.WithoutCancel(t.Context()))
	orders := client.Database("shop").Collection("orders")
	_, err = orders.InsertOne(t.Context(), bson.D{{Key: "_id", Value: 1}})
	require.NoError(t, err)

	servers.Mongo.StepDown(500 * time.Millisecond) // an election: the driver retries some operations, and the program must retry the others
	n, err := orders.CountDocuments(t.Context(), bson.D{})
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
}

// Service Bus alone, with a queue of one's own, and an acknowledgement that gets lost.
func TestAnOrderIsTakenOnce(t *testing.T) {
	bus, connectionString := servicebus.Start(t, servicebus.Config{Queues: []servicebus.Queue{{
		Name:     "orders",
		Inbound:  servicebus.Inbound{RequiresDuplicateDetection: true},
		Outbound: servicebus.Outbound{RequiresSession: true},
	}}}, servicebus.Options{})
	client, err := azservicebus.NewClientFromConnectionString(connectionString, nil)
	require.NoError(t, err)
	defer client.Close(context.WithoutCancel(t.Context()))
	sender, err := client.NewSender("orders", nil)
	require.NoError(t, err)

	bus.LoseAcknowledgements(1)
	id := "order-1"
	require.NoError(t, sender.SendMessage(t.Context(), &azservicebus.Message{MessageID: &id, SessionID: &id}, nil))
	require.Equal(t, 1, bus.Stats("orders").Active)
	require.Equal(t, 1, bus.Stats("orders").Duplicates)
}

// MongoDB in virtual time: ten minutes take no time.
func TestATokenRunsOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := mongo.New(mongo.Options{Host: "mongo.test:27017"})
		l := netpipe.Serve(t, server.Run)
		client, err := driver.Connect(options.Client().ApplyURI(mongo.URI("mongo.test:27017")).SetDialer(dialer(l.DialContext)))
		require.NoError(t, err)
		defer client.Disconnect(context.WithoutCancel(t.Context()))
		tokens := client.Database("shop").Collection("tokens")
		_, err = tokens.Indexes().CreateOne(t.Context(), driver.IndexModel{
			Keys: bson.D{{Key: "at", Value: 1}}, Options: options.Index().SetExpireAfterSeconds(600),
		})
		require.NoError(t, err)
		_, err = tokens.InsertOne(t.Context(), bson.D{{Key: "at", Value: time.Now()}})
		require.NoError(t, err)

		time.Sleep(12 * time.Minute)
		n, err := tokens.CountDocuments(t.Context(), bson.D{})
		require.NoError(t, err)
		require.Zero(t, n)
	})
}

type dialer func(ctx context.Context, network, address string) (net.Conn, error)

func (d dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	return d(ctx, network, address)
}
