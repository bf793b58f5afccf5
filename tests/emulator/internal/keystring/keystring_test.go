package keystring

import (
	"cmp"
	"encoding/hex"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/value"
)

func oid(t *testing.T, s string) bson.ObjectID {
	t.Helper()
	id, err := bson.ObjectIDFromHex(s)
	require.NoError(t, err)
	return id
}

func uuid(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	require.NoError(t, err)
	return b
}

// Tokens that real servers published, byte for byte.
func TestTokenEncodesAsPublished(t *testing.T) {
	for _, c := range []struct {
		name string
		from string
		tok  Token
		want string
	}{
		{
			"insert, ObjectID", "mongodb.com community forum, topic 314845",
			Token{
				Time: bson.Timestamp{T: 1741186978, I: 25}, UUID: uuid(t, "D3284E04D8914467A2160201812E4C4C"),
				Operation: "insert", KeyField: "documentKey", Key: bson.D{{Key: "_id", Value: oid(t, "67c867a2fb1cbcd579f4e4de")}},
			},
			"8267C867A2000000192B042C0100296E5A1004D3284E04D8914467A2160201812E4C4C463C6F7065726174696F6E54797065003C696E736572740046646F63756D656E744B65790046645F6964006467C867A2FB1CBCD579F4E4DE000004",
		},
		{
			"update, string id", "a blog on change streams and PostgreSQL",
			Token{
				Time: bson.Timestamp{T: 1700267321, I: 1}, UUID: uuid(t, "A7F55A5B35BD4C7DB2CD56C6CFEA9C49"),
				Operation: "update", KeyField: "documentKey", Key: bson.D{{Key: "_id", Value: "beer"}},
			},
			"8265580539000000012B042C0100296E5A1004A7F55A5B35BD4C7DB2CD56C6CFEA9C49463C6F7065726174696F6E54797065003C7570646174650046646F63756D656E744B657900463C5F6964003C6265657200000004",
		},
		{
			"high-water mark", "mongodb.com manual, resume tokens from aggregate",
			HighWaterMark(bson.Timestamp{T: 1666277036, I: 2}),
			"8263515EAC000000022B0429296E1404",
		},
		{
			"version 1, update", "a public repository, 2024",
			Token{
				Version: 1, Time: bson.Timestamp{T: 1723711841, I: 1}, UUID: uuid(t, "E9487B8EF2864139A085DBC4AD6DB29C"),
				Operation: "update", KeyField: "documentKey", Key: bson.D{{Key: "_id", Value: oid(t, "657adb477df7fd75cbed4b4d")}},
			},
			"8266BDC161000000012B022C0100296E5A1004E9487B8EF2864139A085DBC4AD6DB29C46645F69640064657ADB477DF7FD75CBED4B4D0004",
		},
		{
			"version 1, high-water mark", "a public repository, 2021",
			Token{Version: 1, Time: bson.Timestamp{T: 1630496062, I: 2}, HighWater: true},
			"82612F653E000000022B0229296E04",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, bits := c.tok.Encode()
			require.Equal(t, c.want, got, c.from)
			require.Nil(t, bits)
			p, err := Parse(bson.D{{Key: "_data", Value: got}})
			require.NoError(t, err)
			require.Equal(t, Parsed{Version: cmp.Or(c.tok.Version, 2), Data: got, Time: c.tok.Time, HighWater: c.tok.HighWater, HasUUID: c.tok.UUID != nil}, p)
		})
	}
}

func TestTokensSortInStreamOrder(t *testing.T) {
	at := bson.Timestamp{T: 100, I: 7}
	event := func(op int, id any, fragment int, invalidate bool) Token {
		return Token{Time: at, TxnOp: op, UUID: make([]byte, 16), Operation: "insert", KeyField: "documentKey", Key: bson.D{{Key: "_id", Value: id}}, Fragment: fragment, Invalidate: invalidate}
	}
	order := []Token{
		HighWaterMark(at), event(0, "z", 0, false), event(1, "a", 1, false), event(1, "a", 2, false), event(1, "a", 3, false),
		event(2, int32(5), 0, false), event(127, nil, 0, false), event(128, nil, 0, false), event(300, nil, 0, false), event(70000, nil, 0, false),
		event(70000, nil, 0, true), HighWaterMark(bson.Timestamp{T: 100, I: 8}), HighWaterMark(bson.Timestamp{T: 101, I: 1}),
	}
	for i := 1; i < len(order); i++ {
		a, _ := order[i-1].Encode()
		b, _ := order[i].Encode()
		require.Less(t, a, b, "token %d", i)
	}
}

// The order of keys is the order of values, over every pair of a mixed population.
func TestKeyOrderIsValueOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	values := []any{
		bson.MinKey{},
		nil, math.NaN(), math.Inf(-1), math.Inf(1), 0.0, 1.5, 1.25, -1.5, -1.25, 0.25, -0.25, 2.0, int32(2), int64(2), math.MaxFloat64, 5e-324,
		int64(math.MaxInt64), int64(math.MinInt64), float64(1 << 53), int64(1<<53 + 1), "", "a", "a\x00", "a\x00b", "ab",
		bson.D{},
		bson.D{{Key: "a", Value: int32(1)}},
		bson.D{{Key: "a", Value: "1"}},
		bson.D{{Key: "b", Value: int32(0)}},
		bson.A{},
		bson.A{int32(1)},
		bson.A{int32(1), "x"},
		bson.Binary{Data: []byte{1}},
		bson.Binary{Data: []byte{0, 1}},
		bson.Binary{Subtype: 4, Data: []byte{0}},
		bson.ObjectID{1},
		bson.ObjectID{2},
		false, true, bson.DateTime(-5), bson.DateTime(5),
		bson.Timestamp{T: 1, I: 9},
		bson.Timestamp{T: 2, I: 1},
		bson.Regex{Pattern: "a"},
		bson.Regex{Pattern: "b"},
		bson.MaxKey{},
	}
	for range 200 {
		values = append(values, int64(r.Uint64()>>r.IntN(64)), -int64(r.Uint64()>>(1+r.IntN(63))), r.NormFloat64()*math.Pow(10, float64(r.IntN(20)-10)), int32(r.Uint32()))
	}
	for _, a := range values {
		for _, b := range values {
			require.Equal(t, value.Compare(a, b), strings.Compare(Of(a), Of(b)), "%T %v against %T %v", a, a, b, b)
		}
	}
}

func TestTypeBitsDistinguishNumberTypes(t *testing.T) {
	bits := func(id any) []byte {
		_, b := Token{Operation: "insert", KeyField: "documentKey", Key: bson.D{{Key: "_id", Value: id}}}.Encode()
		return b
	}
	require.Nil(t, bits(int32(4)))
	require.NotNil(t, bits(int64(4)))
	require.NotEqual(t, bits(int64(4)), bits(4.0))
}

func TestParseRefusesInvalidTokens(t *testing.T) {
	for _, c := range []any{"zz", "", "82", "8263515EAC00000002", "8263515EAC000000022B0629296E1404", "8263515EAC000000022B0429296E04", "8263515EAC000000022B0429296E14", int32(5), nil} {
		_, err := Parse(bson.D{{Key: "_data", Value: c}})
		require.Error(t, err, "%v", c)
	}
}
