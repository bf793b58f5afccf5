package changes

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/shared/envelope"
)

const token = "8263A1B2C3000000012B042C0100296E5A1004"

func raw(t *testing.T, v any) bson.Raw {
	t.Helper()
	b, err := bson.Marshal(v)
	require.NoError(t, err)
	return b
}

func mapping() Mapping {
	return Mapping{
		Stream: "shop.events", AggregatePath: "order.id", TypePath: "type", VersionPath: "version",
		CorrelationPath: "meta.correlation",
		Operations:      []envelope.Operation{envelope.Insert, envelope.Update, envelope.Replace, envelope.Delete},
		Images:          Images{Before: true},
	}
}

func mapped(t *testing.T, m Mapping, event bson.D) envelope.Change {
	t.Helper()
	event = append(bson.D{{Key: "_id", Value: bson.D{{Key: "_data", Value: token}}}}, event...)
	e := raw(t, event)
	c, err := m.change(e, token, "n1")
	require.NoError(t, err)
	return c
}

func TestAnEventsPartsAreFoundInItsDocument(t *testing.T) {
	when := time.Date(2026, 3, 1, 12, 0, 0, 123e6, time.UTC)
	c := mapped(t, mapping(), bson.D{
		{Key: "operationType", Value: "insert"},
		{Key: "clusterTime", Value: bson.Timestamp{T: 1700000000, I: 1}},
		{Key: "wallTime", Value: when},
		{Key: "fullDocument", Value: bson.D{
			{Key: "_id", Value: 1},
			{Key: "order", Value: bson.D{{Key: "id", Value: "o-1"}}},
			{Key: "type", Value: "Order (placed)"},
			{Key: "version", Value: int32(7)},
			{Key: "meta", Value: bson.D{{Key: "correlation", Value: "c-9"}}},
		}},
		{Key: "documentKey", Value: bson.D{{Key: "_id", Value: 1}}},
	})
	require.Equal(t, "shop.events", c.Stream)
	require.Equal(t, token, c.Token)
	require.Equal(t, "n1", c.Position)
	require.Equal(t, "o-1", c.Aggregate)
	require.Equal(t, envelope.Insert, c.Operation)
	require.Equal(t, "Order (placed)", c.Type)
	require.Equal(t, int64(7), c.Version)
	require.Equal(t, "c-9", c.CorrelationID)
	require.Equal(t, when, c.Time)
	require.NoError(t, c.Body.Validate())
	_, err := c.Body.LookupErr("_id")
	require.Error(t, err, "the token stays out of the message")
	require.Equal(t, int32(1), c.Key().Lookup("_id").Int32())
}

func TestAnAggregateWithoutItsPathIsTheDocumentsKey(t *testing.T) {
	id := bson.NewObjectID()
	for name, test := range map[string]struct {
		key  any
		want string
	}{
		"ObjectID":     {id, id.Hex()},
		"string":       {"k", "k"},
		"integer":      {int64(42), "42"},
		"UUID":         {bson.Binary{Subtype: 4, Data: []byte("0123456789abcdef")}, "30313233-3435-3637-3839-616263646566"},
		"document":     {bson.D{{Key: "a", Value: int32(1)}}, `{"a": {"$numberInt":"1"}}`},
		"empty string": {"", `""`},
		"null":         {nil, "null"},
	} {
		t.Run(name, func(t *testing.T) {
			c := mapped(t, mapping(), bson.D{
				{Key: "operationType", Value: "insert"},
				{Key: "documentKey", Value: bson.D{{Key: "_id", Value: test.key}}},
				{Key: "fullDocument", Value: bson.D{{Key: "_id", Value: test.key}}},
			})
			require.Equal(t, test.want, c.Aggregate)
			require.Equal(t, "insert", c.Type)
			byID := mapping()
			byID.AggregatePath, byID.Images = "_id", Images{}
			c = mapped(t, byID, bson.D{
				{Key: "operationType", Value: "delete"},
				{Key: "documentKey", Value: bson.D{{Key: "_id", Value: test.key}}},
			})
			require.Equal(t, test.want, c.Aggregate, "a delete of a document that is its own aggregate")
		})
	}
}

func TestTimeFallsBackToTheClusterTime(t *testing.T) {
	c := mapped(t, mapping(), bson.D{
		{Key: "operationType", Value: "insert"},
		{Key: "clusterTime", Value: bson.Timestamp{T: 1700000000, I: 1}},
		{Key: "documentKey", Value: bson.D{{Key: "_id", Value: "k"}}},
	})
	require.Equal(t, time.Unix(1700000000, 0).UTC(), c.Time)
}

// G6: each kind of event has a defined treatment, and an unknown kind is an error.
func TestG6EveryKindOfEventHasATreatment(t *testing.T) {
	m := mapping()
	m.Operations = []envelope.Operation{envelope.Insert}
	for operation, want := range map[string]kind{
		"insert": change, "update": passed, "replace": passed, "delete": passed,
		"drop": collection, "rename": collection, "dropDatabase": collection, "invalidate": invalidate,
		"refineCollectionShardKey": unknown, "": unknown,
	} {
		require.Equal(t, want, m.kind(operation), operation)
	}
}

// The position of the field does not matter: the rest is unchanged, byte for byte.
func TestWithoutIDKeepsTheOtherFields(t *testing.T) {
	id, rest := bson.E{Key: "_id", Value: bson.D{{Key: "_data", Value: "82"}}}, bson.D{{Key: "a", Value: 1}, {Key: "b", Value: bson.A{"x", "y"}}}
	want, err := bson.Marshal(rest)
	require.NoError(t, err)
	for name, document := range map[string]bson.D{
		"first": {id, rest[0], rest[1]}, "between": {rest[0], id, rest[1]}, "last": {rest[0], rest[1], id}, "nowhere": rest,
	} {
		given, err := bson.Marshal(document)
		require.NoError(t, err)
		kept, err := withoutID(given)
		require.NoError(t, err, name)
		require.Equal(t, bson.Raw(want), kept, name)
	}
}
