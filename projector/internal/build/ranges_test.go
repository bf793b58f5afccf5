package build

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/shared/envelope"
)

func value(t *testing.T, v any) bson.RawValue {
	t.Helper()
	kind, data, err := bson.MarshalValue(v)
	require.NoError(t, err)
	return bson.RawValue{Type: kind, Value: data}
}

// The text of an aggregate's id leads to the range that its value lies in, for ids of every type
// that a build takes.
func TestThroughIsThePositionOfTheAggregatesRange(t *testing.T) {
	decimal, err := bson.ParseDecimal128("2.5")
	require.NoError(t, err)
	for name, ids := range map[string][]any{ // in MongoDB's order
		"strings":   {"", "10", "2", "a", "ab", "b", "ä"},
		"numbers":   {-5.5, int32(-1), int64(0), 0.25, int32(2), decimal, int32(10), int64(1) << 60, 1e300},
		"ObjectIDs": {bson.ObjectID{1}, bson.ObjectID{1, 1}, bson.ObjectID{2}, bson.ObjectID{0xff}},
		"UUIDs":     {uuid(0), uuid(9), uuid(10), uuid(200)},
		"dates":     {bson.DateTime(-1_000), bson.DateTime(0), bson.DateTime(1_500), bson.DateTime(250_000_000_000)},
	} {
		t.Run(name, func(t *testing.T) {
			r := &Ranges{stream: "s"}
			for i, id := range ids {
				if i%2 == 1 && i < len(ids)-1 {
					r.spans = append(r.spans, span{To: value(t, id), At: bson.Timestamp{T: uint32(i)}})
				}
			}
			r.spans = append(r.spans, span{At: bson.Timestamp{T: 99}})
			for i, id := range ids {
				text, ok := envelope.Text(value(t, id))
				if !ok {
					continue
				}
				want := i | 1
				if want >= len(ids)-1 {
					want = 99
				}
				require.Equal(t, boundary(bson.Timestamp{T: uint32(want)}), r.Through("s", text), fmt.Sprint(id))
			}
			require.Empty(t, r.Through("another stream", "a"))
		})
	}
}

func uuid(last byte) bson.Binary {
	data := make([]byte, 16)
	data[15] = last
	return bson.Binary{Subtype: bson.TypeBinaryUUID, Data: data}
}
