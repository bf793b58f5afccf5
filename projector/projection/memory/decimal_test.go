package memory

import (
	"math"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/projector/projection"
)

func parse(t *testing.T, text string) bson.Decimal128 {
	t.Helper()
	d, err := bson.ParseDecimal128(text)
	require.NoError(t, err, text)
	return d
}

// The results are those of another implementation of IEEE 754, digit for digit.
func TestDecimalsAreIEEE754s(t *testing.T) {
	text, err := os.ReadFile("testdata/decimal128.txt")
	require.NoError(t, err)
	vectors := 0
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if words[0] == "#" {
			continue
		}
		require.Len(t, words, 5, line)
		calculate := decimal.add
		if words[1] == "*" {
			calculate = decimal.multiply
		}
		got := calculate(decimalOf(parse(t, words[0])), decimalOf(parse(t, words[2])))
		require.Equal(t, parse(t, words[4]), got.encode(), "%swas %s", line, got.encode())
		vectors++
	}
	require.Greater(t, vectors, 700)
}

// The types and digits of $inc and $mul. [MongoDB src/mongo/util/safe_num.cpp]
func TestArithmeticOfEveryType(t *testing.T) {
	const largest, least = int64(math.MaxInt64), int64(math.MinInt64)
	d := func(text string) bson.Decimal128 { return parse(t, text) }
	for _, c := range []struct {
		value, by    any
		sum, product any // nil: refused
	}{
		{int32(2), int32(3), int32(5), int32(6)},
		{int32(math.MaxInt32), int32(2), int64(math.MaxInt32) + 2, int64(math.MaxInt32) * 2},
		{int32(2), int64(3), int64(5), int64(6)},
		{int64(2), int32(3), int64(5), int64(6)},
		{int32(2), 1.5, 3.5, 3.0},
		{int64(2), 1.5, 3.5, 3.0},
		{1.5, int64(2), 3.5, 3.0},
		{largest, int32(1), nil, largest},
		{largest, int64(2), nil, nil},
		{least, int64(-1), nil, nil},
		{int64(-1), least, nil, nil},
		{int64(1) << 32, int64(-1) << 31, int64(1) << 31, least},
		{least, int64(1), least + 1, least},
		{largest, 1.0, float64(largest), float64(largest)},
		{1e308, 1e308, math.Inf(1), math.Inf(1)},
		{math.Copysign(0, -1), 0.0, math.Copysign(0, -1), math.Copysign(0, -1)}, // equal, so nothing changes
		{int32(2), d("1.50"), d("3.50"), d("3.00")},
		{d("1.50"), int64(2), d("3.50"), d("3.00")},
		{d("1"), largest, d("9223372036854775808"), d("9223372036854775807")},
		{d("1"), 0.1, d("1.100000000000000"), d("0.100000000000000")},
		{d("1"), 1.5, d("2.50000000000000"), d("1.50000000000000")},
		{d("0"), 0.0, d("0"), d("0")},
		{d("2"), 0.9999999999999999, d("3.00000000000000"), d("2")}, // equal, so it keeps its digits
		{d("2"), 123456789012345678.0, d("123456789012346002"), d("2.46913578024692E+17")},
		{d("2"), 5e-324, d("2"), d("9.88131291682494E-324")},
		{d("1.0"), d("0.00"), d("1.0"), d("0.000")},
		{d("9999999999999999999999999999999999"), int32(1), d("1.000000000000000000000000000000000E+34"), d("9999999999999999999999999999999999")},
		{d("9E+6144"), int32(2), d("9.000000000000000000000000000000000E+6144"), d("Infinity")},
		{"x", int32(1), nil, nil},
		{int32(1), "x", nil, nil},
		{nil, int32(1), nil, nil},
		{true, d("1"), nil, nil},
	} {
		for kind, want := range map[projection.OpKind]any{projection.OpInc: c.sum, projection.OpMul: c.product} {
			got, err := operate(c.value, projection.Op{Kind: kind, Field: "n", Value: c.by})
			if want == nil {
				require.ErrorIs(t, err, ErrRefused, "%s %v %v", kind, c.value, c.by)
				continue
			}
			require.NoError(t, err, "%s %v %v", kind, c.value, c.by)
			require.True(t, equal(want, got), "%s %T %v, %T %v: expected %T %v, was %T %v", kind, c.value, c.value, c.by, c.by, want, want, got, got)
		}
	}
	for _, unknown := range []any{d("NaN"), d("Infinity"), d("-Infinity"), math.NaN(), math.Inf(1)} {
		for _, kind := range []projection.OpKind{projection.OpInc, projection.OpMul} {
			_, err := operate(d("1"), projection.Op{Kind: kind, Field: "n", Value: unknown})
			require.ErrorIs(t, err, ErrUnsupported)
		}
	}
}

func TestNumbersAreComparedExactly(t *testing.T) {
	ascending := []any{
		math.NaN(), math.Inf(-1), parse(t, "-1E+400"), int64(math.MinInt64), -0.5, parse(t, "-0.1"), int32(0), 5e-324, parse(t, "0.1"), 0.1,
		parse(t, "1"), parse(t, "1.0000000000000000000001"), math.Nextafter(1, 2), int64(math.MaxInt64) - 1, int64(math.MaxInt64), 0x1p63,
		parse(t, "9223372036854775808.1"), math.MaxFloat64, parse(t, "1E+400"), math.Inf(1),
	}
	for i, a := range ascending {
		for j, b := range ascending {
			want := 0
			switch {
			case i < j:
				want = -1
			case i > j:
				want = 1
			}
			require.Equal(t, want, compareNumbers(a, b), "%v %v", a, b)
		}
	}
	for _, equals := range [][]any{{int32(1), int64(1), 1.0, parse(t, "1"), parse(t, "1.00")}, {0.0, math.Copysign(0, -1), parse(t, "-0E+10")}, {math.NaN(), parse(t, "NaN")}} {
		for _, a := range equals {
			for _, b := range equals {
				require.Zero(t, compareNumbers(a, b), "%v %v", a, b)
			}
		}
	}
}
