package changes

import (
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/shared/envelope"
)

// The time to map an inserted event of 1 KB from the change stream to the envelope.
func BenchmarkMapping(b *testing.B) {
	const token = "826B00EBB8000000022B042C0100296E5A1004A5F2B2C3D4E5F60718293A4B5C6D7E8F46645F696400646B00EBB8A1B2C3D4E5F607180004"
	event, err := bson.Marshal(bson.D{
		{Key: "_id", Value: bson.D{{Key: "_data", Value: token}}},
		{Key: "operationType", Value: "insert"},
		{Key: "clusterTime", Value: bson.Timestamp{T: 1795308472, I: 2}},
		{Key: "wallTime", Value: time.Unix(1795308472, 0)},
		{Key: "fullDocument", Value: bson.D{
			{Key: "_id", Value: bson.ObjectID{1, 2, 3}},
			{Key: "aggregateId", Value: "a000007"},
			{Key: "version", Value: 12},
			{Key: "type", Value: "Measured"},
			{Key: "pad", Value: strings.Repeat("x", 700)},
		}},
		{Key: "ns", Value: bson.D{{Key: "db", Value: "shop"}, {Key: "coll", Value: "events"}}},
		{Key: "documentKey", Value: bson.D{{Key: "_id", Value: bson.ObjectID{1, 2, 3}}}},
	})
	if err != nil {
		b.Fatal(err)
	}
	m := Mapping{
		Stream: "shop.events", AggregatePath: "aggregateId", TypePath: "type", VersionPath: "version",
		Operations: []envelope.Operation{envelope.Insert},
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := m.change(event, token, token); err != nil {
			b.Fatal(err)
		}
	}
}
