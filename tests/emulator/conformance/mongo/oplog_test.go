package mongo_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
)

type oplogEntry struct {
	TS bson.Timestamp `bson:"ts"`
	Op string         `bson:"op"`
	NS string         `bson:"ns"`
}

// The oplog's window can be read where a member keeps it; what it forgets moves its beginning.
func TestTheOplogReportsItsWindow(t *testing.T) {
	f := serve(t, mongo.Options{OplogEntries: 10})
	oplog := f.client.Database("local").Collection("oplog.rs")
	fields := bson.D{{Key: "ts", Value: 1}, {Key: "op", Value: 1}, {Key: "ns", Value: 1}}
	oldest := func() (e oplogEntry) {
		require.NoError(t, oplog.FindOne(t.Context(), bson.D{}, options.FindOne().SetProjection(fields)).Decode(&e))
		return e
	}
	first := oldest()
	require.Equal(t, "n", first.Op)
	for i := range 20 {
		_, err := f.coll().InsertOne(t.Context(), bson.D{{Key: "_id", Value: i}})
		require.NoError(t, err)
	}
	require.True(t, oldest().TS.After(first.TS), "the beginning has been forgotten")
	require.Equal(t, "db.c", oldest().NS)

	var newest oplogEntry
	require.NoError(t, oplog.FindOne(t.Context(), bson.D{{Key: "op", Value: "i"}},
		options.FindOne().SetProjection(fields).SetSort(bson.D{{Key: "$natural", Value: -1}})).Decode(&newest))
	require.True(t, newest.TS.After(oldest().TS))

	require.ErrorContains(t, oplog.FindOne(t.Context(), bson.D{}).Err(), "without a projection")
	_, err := oplog.InsertOne(t.Context(), bson.D{{Key: "ts", Value: 1}})
	require.ErrorContains(t, err, "does not support retryable writes", "the driver's reading of a server's error for a numbered write to local")
	err = oplog.Database().RunCommand(t.Context(), d("insert", "oplog.rs", "documents", bson.A{d("ts", 1)})).Err()
	require.ErrorContains(t, err, "cannot write to 'local.oplog.rs'")
}
