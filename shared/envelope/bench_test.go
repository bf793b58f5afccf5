package envelope

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// BenchmarkEncode writes one change with a body of about 1 KB. The body is shared, not copied, in BSON.
func BenchmarkEncode(b *testing.B) {
	body, err := bson.Marshal(bson.D{{Key: "operationType", Value: "insert"}, {Key: "payload", Value: make([]byte, 1000)}})
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
