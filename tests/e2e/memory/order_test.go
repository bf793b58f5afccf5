package memory_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/shared/mongodb"
)

// A snapshot compares the id of a change with the last id that it has read. Its order is the one in
// which the server returns ids.
func TestIDsAreComparedAsTheServerDoes(t *testing.T) {
	collection := emptyDatabase(t, mongoClient(t)).Collection("ids")
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	var value func(deep int) any
	value = func(deep int) any {
		n := random.IntN(7) - 3
		plain := []any{
			int32(n), int64(n) << 40, float64(n) / 2, decimal(fmt.Sprintf("%d.%d", n, random.IntN(3))), math.NaN(), math.Inf(n | 1),
			bson.MinKey{},
			bson.MaxKey{},
			nil,
			bson.Undefined{},
			n > 0,
			fmt.Sprint("s", n), "ä", "", bson.Symbol(fmt.Sprint("s", n)),
			bson.ObjectID{byte(n)},
			bson.NewDateTimeFromTime(time.Unix(int64(n), 0)),
			bson.Timestamp{T: uint32(n + 3), I: uint32(random.IntN(3))},
			bson.Binary{Subtype: byte(random.IntN(2)), Data: make([]byte, random.IntN(3))},
		}
		if deep < 2 && random.IntN(4) == 0 {
			document := bson.D{}
			for range random.IntN(3) {
				document = append(document, bson.E{Key: string(rune('a' + random.IntN(2))), Value: value(deep + 1)})
			}
			if deep > 0 && random.IntN(2) == 0 {
				return bson.A{value(deep + 1), value(deep + 1)}
			}
			return document
		}
		return plain[random.IntN(len(plain))]
	}
	for range 1000 {
		_, _ = collection.InsertOne(t.Context(), bson.D{{Key: "_id", Value: value(0)}}) // it fails if an equal one is there
	}
	cursor, err := collection.Find(t.Context(), bson.D{}, options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}))
	require.NoError(t, err)
	var all []bson.Raw
	require.NoError(t, cursor.All(t.Context(), &all))
	require.Greater(t, len(all), 100)
	for i := range all {
		for j := range i {
			require.Negative(t, mongodb.Compare(all[j].Lookup("_id"), all[i].Lookup("_id")), "%s and %s", all[j], all[i])
		}
	}
}
