package mongo_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
)

// A stale primary takes writes that no majority has: they are acknowledged only to a client that
// asks for no majority, and read only by one that asks for none.
func TestAStalePrimary(t *testing.T) {
	t.Parallel()
	srv, uri := mongo.Start(t, mongo.Options{Version: [3]int32{6}})
	client, err := driver.Connect(options.Client().ApplyURI(uri))
	require.NoError(t, err)
	defer func() { require.NoError(t, client.Disconnect(t.Context())) }()
	one := func(concern *writeconcern.WriteConcern, read *readconcern.ReadConcern) *driver.Collection {
		return client.Database("shop").Collection("things", options.Collection().SetWriteConcern(concern).SetReadConcern(read))
	}
	local, majority := one(writeconcern.W1(), readconcern.Local()), one(writeconcern.Majority(), readconcern.Majority())
	count := func(c *driver.Collection) int64 {
		n, err := c.CountDocuments(t.Context(), bson.D{})
		require.NoError(t, err)
		return n
	}
	_, err = majority.InsertOne(t.Context(), bson.D{{Key: "_id", Value: 1}})
	require.NoError(t, err)

	rejoin := srv.Isolate()
	_, err = local.InsertOne(t.Context(), bson.D{{Key: "_id", Value: 2}})
	require.NoError(t, err)
	require.EqualValues(t, 2, count(local))
	require.EqualValues(t, 1, count(majority))

	err = client.Database("shop").RunCommand(t.Context(), bson.D{
		{Key: "insert", Value: "things"},
		{Key: "documents", Value: bson.A{bson.D{{Key: "_id", Value: 3}}}},
		{Key: "writeConcern", Value: bson.D{{Key: "w", Value: "majority"}, {Key: "wtimeout", Value: 10}}},
	}).Err()
	require.ErrorContains(t, err, "waiting for replication timed out")
	require.EqualValues(t, 3, count(local), "the write has happened")

	waiting := make(chan error, 1)
	go func() {
		_, err := majority.InsertOne(t.Context(), bson.D{{Key: "_id", Value: 4}})
		waiting <- err
	}()
	require.Eventually(t, func() bool { return count(local) == 4 }, 10*time.Second, time.Millisecond)
	require.Empty(t, waiting)
	rejoin()
	require.NoError(t, <-waiting, "the driver repeats it, and it is recognised")
	require.EqualValues(t, 4, count(majority))
}
