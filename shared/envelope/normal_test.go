package envelope

import (
	"math"
	"math/big"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
)

func valueOf(t *testing.T, v any) bson.RawValue {
	t.Helper()
	kind, data, err := bson.MarshalValue(v)
	require.NoError(t, err)
	return bson.RawValue{Type: kind, Value: data}
}

func decimal(t *testing.T, text string) bson.Decimal128 {
	t.Helper()
	d, err := bson.ParseDecimal128(text)
	require.NoError(t, err)
	return d
}

// G2: values that are one _id to MongoDB are one aggregate, and others are others.
func TestG2EqualValuesHaveOneText(t *testing.T) {
	for text, same := range map[string][]any{
		"7":                   {int32(7), int64(7), 7.0, decimal(t, "7"), decimal(t, "7.00"), decimal(t, "0.7E1")},
		"0":                   {int32(0), math.Copysign(0, -1), decimal(t, "-0.00"), decimal(t, "0E+6000")},
		"9007199254740994":    {int64(1<<53 + 2), float64(1<<53 + 2), decimal(t, "9007199254740994")},
		"9007199254740993":    {int64(1<<53 + 1), decimal(t, "9007199254740993")},
		"1000":                {int32(1000), decimal(t, "1E3")},
		"9223372036854774784": {int64(9223372036854774784), 9223372036854774784.0},
		`{"$numberDouble":"1.8446744073709552E+19"}`: {float64(1 << 64), decimal(t, "18446744073709551616")},
		`{"$numberDouble":"1.5"}`:                    {1.5, decimal(t, "1.50")},
		`{"$numberDouble":"0.1"}`:                    {0.1},
		`{"$numberDecimal":"0.1"}`:                   {decimal(t, "0.1"), decimal(t, "0.1000")},
		`{"$numberDouble":"NaN"}`:                    {math.NaN(), decimal(t, "NaN"), math.Float64frombits(0x7FF8000000000001)},
		`{"$numberDouble":"Infinity"}`:               {math.Inf(1), decimal(t, "Infinity")},
		`{"t": {"$numberInt":"1"}}`:                  {bson.D{{Key: "t", Value: int32(1)}}, bson.D{{Key: "t", Value: 1.0}}, bson.D{{Key: "t", Value: decimal(t, "1.0")}}},
		`{"t": [{"$numberInt":"1"},"s"]}`: {
			bson.D{{Key: "t", Value: bson.A{int64(1), "s"}}}, bson.D{{Key: "t", Value: bson.A{1.0, bson.Symbol("s")}}},
		},
		`{"u": {"$numberInt":"1"},"t": {"$numberInt":"1"}}`: {bson.D{{Key: "u", Value: int32(1)}, {Key: "t", Value: int32(1)}}},
		"word": {"word", bson.Symbol("word")},
	} {
		for _, v := range same {
			got, ok := Text(valueOf(t, v))
			require.True(t, ok)
			require.Equal(t, text, got, "of %T %v", v, v)
		}
	}
}

// G2: two numbers have one text exactly if they are equal, whatever their types.
func TestG2NumbersHaveOneTextIfTheyAreEqual(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	draw := func() (any, *big.Rat) {
		whole := []int64{0, 1, 10, 25, 1 << 31, 1 << 53, 1<<53 + 1, 1 << 62, math.MaxInt64}[random.IntN(9)] * int64(1-2*random.IntN(2))
		switch random.IntN(4) {
		case 0:
			return whole, new(big.Rat).SetInt64(whole)
		case 1:
			return int32(whole % (1 << 31)), new(big.Rat).SetInt64(whole % (1 << 31))
		case 2:
			f := float64(whole) / []float64{1, 2, 8, 10, 0.5, 1e-30}[random.IntN(6)]
			return f, new(big.Rat).SetFloat64(f)
		}
		text := strconv.FormatInt(whole, 10) + []string{"", ".0", "E1", "E-1", "E30", "E-60", "E6000"}[random.IntN(7)]
		r, _ := new(big.Rat).SetString(text)
		return decimal(t, text), r
	}
	equal := 0
	for range 20_000 {
		a, x := draw()
		b, y := draw()
		one, _ := Text(valueOf(t, a))
		other, _ := Text(valueOf(t, b))
		require.Equal(t, x.Cmp(y) == 0, one == other, "%T %v and %T %v: %s and %s", a, a, b, b, one, other)
		if x.Cmp(y) == 0 {
			equal++
		}
	}
	require.Greater(t, equal, 500)
}

// Normal is of any value, valid or not, and of its own result the same.
func FuzzNormal(f *testing.F) {
	f.Add(byte(bson.TypeEmbeddedDocument), []byte{12, 0, 0, 0, 16, 'a', 0, 1, 0, 0, 0, 0})
	f.Add(byte(bson.TypeDecimal128), make([]byte, 16))
	f.Fuzz(func(t *testing.T, kind byte, data []byte) {
		v := bson.RawValue{Type: bson.Type(kind), Value: data}
		if v.Validate() != nil {
			return
		}
		once := Normal(v)
		require.Equal(t, once, Normal(once))
	})
}
