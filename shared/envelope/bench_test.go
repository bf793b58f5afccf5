package envelope

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// BenchmarkEncode writes one change with a body of about 1 KB, of fields of the usual types. The
// body is shared, not copied, in BSON.
func BenchmarkEncode(b *testing.B) {
	body, err := bson.Marshal(bson.D{
		{Key: "operationType", Value: "insert"},
		{Key: "clusterTime", Value: bson.Timestamp{T: 1_790_000_000, I: 3}},
		{Key: "fullDocument", Value: bson.D{
			{Key: "_id", Value: bson.NewObjectID()},
			{Key: "aggregateId", Value: "order-17"},
			{Key: "version", Value: 5},
			{Key: "type", Value: "OrderPlaced"},
			{Key: "at", Value: time.Unix(1_790_000_000, 0)},
			{Key: "data", Value: bson.D{
				{Key: "customerId", Value: "c-1"},
				{Key: "totalCents", Value: int64(1999)},
				{Key: "note", Value: strings.Repeat("x", 700)},
				{Key: "lines", Value: bson.A{bson.D{{Key: "sku", Value: "a"}, {Key: "price", Value: 19.99}}, bson.D{{Key: "sku", Value: "b"}, {Key: "price", Value: 0.5}}}},
			}},
		}},
	})
	require.NoError(b, err)
	c := Change{
		Stream: "shop.events", Token: "82ABCDEF0011223344556677", Position: "82ABCDEF0011223344556677", Epoch: 3,
		Aggregate: "order-17", Operation: Insert, Type: "OrderPlaced", Version: 5, Time: time.Unix(1_790_000_000, 0), Body: body,
	}
	for _, format := range []Format{BSON, JSON} {
		b.Run(string(format), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Encode(c, format); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
