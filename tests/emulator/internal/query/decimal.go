package query

import (
	"math"
	"math/big"
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/mongoerr"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/value"
)

// The bounds of a Decimal128. [IEEE 754-2008, table 3.6]
const (
	decimalDigits      = 34
	minDecimalExponent = -6176
	maxDecimalExponent = 6111
)

// scaled is ±coefficient × 10^exponent. The sign is apart: zero has one, too.
type scaled struct {
	negative    bool
	coefficient *big.Int
	exponent    int
}

// digitsOfDouble is how many digits of a double take part in the arithmetic of decimals, except for
// sums of many, which keep all. [MongoDB src/mongo/db/exec/document_value/value.cpp,
// coerceToDecimal]
const digitsOfDouble = 15

// decimals calculates if one of two numbers is a decimal. A double takes part with so many digits.
func decimals(op string, a, b any, digits int) (any, error) {
	for _, v := range []any{a, b} {
		if f, _ := value.AsFloat(v); math.IsNaN(f) || (math.IsInf(f, 0) && infinite(v)) {
			return nil, mongoerr.Unsupported("%s of a Decimal128 that is infinite or not a number", op)
		}
	}
	x, y := scale(a, digits), scale(b, digits)
	switch op {
	case "$mul", "$multiply":
		return scaled{x.negative != y.negative, new(big.Int).Mul(x.coefficient, y.coefficient), x.exponent + y.exponent}.decimal(), nil
	case "$divide":
		return x.over(y).decimal(), nil
	case "$inc", "$add":
	case "$subtract":
		y.negative = !y.negative
	default:
		return nil, mongoerr.Unsupported("%s on Decimal128", op)
	}
	low := min(x.exponent, y.exponent)
	sum := new(big.Int).Add(x.at(low), y.at(low))
	return scaled{sum.Sign() < 0 || (sum.Sign() == 0 && x.negative && y.negative), sum.Abs(sum), low}.decimal(), nil
}

// over divides. An exact quotient keeps as few digits as the two had; otherwise there are 34, and
// one more digit represents the rest.
func (s scaled) over(by scaled) scaled {
	const more = 2 * decimalDigits
	q, rest := new(big.Int).QuoRem(new(big.Int).Mul(s.coefficient, tenTo(more)), by.coefficient, new(big.Int))
	r := scaled{s.negative != by.negative, q, s.exponent - by.exponent - more}
	if rest.Sign() != 0 {
		q.Mul(q, big.NewInt(10)).Add(q, big.NewInt(1))
		r.exponent--
		return r
	}
	for r.exponent < s.exponent-by.exponent {
		tenth, last := new(big.Int).QuoRem(r.coefficient, big.NewInt(10), new(big.Int))
		if last.Sign() != 0 {
			break
		}
		r.coefficient, r.exponent = tenth, r.exponent+1
	}
	return r
}

// infinite distinguishes infinity from a decimal that is only beyond a double's range.
func infinite(v any) bool {
	d, ok := v.(bson.Decimal128)
	return !ok || d.IsInf() != 0
}

func scale(v any, digits int) scaled {
	switch t := v.(type) {
	case bson.Decimal128:
		high, _ := t.GetBytes()
		n, exponent, _ := t.BigInt()
		return scaled{high>>63 == 1, n.Abs(n), exponent}
	case float64:
		return scaleDouble(t, digits)
	}
	n, _ := value.AsInt(v)
	c := big.NewInt(n)
	return scaled{n < 0, c.Abs(c), 0}
}

// scaleDouble rounds twice, as the server does: to the digits of a decimal, then to those that are
// wanted.
func scaleDouble(f float64, digits int) scaled {
	s := scaled{math.Signbit(f), new(big.Int), 0}
	if f == 0 {
		return s
	}
	mantissa, exponent, _ := strings.Cut(strconv.FormatFloat(math.Abs(f), 'e', decimalDigits-1, 64), "e")
	s.coefficient.SetString(strings.ReplaceAll(mantissa, ".", ""), 10)
	n, _ := strconv.Atoi(exponent)
	s.exponent = n - (decimalDigits - 1)
	if s = s.without(decimalDigits - digits); s.digits() > digits {
		s = s.without(1)
	}
	return s
}

func (s scaled) digits() int { return len(s.coefficient.String()) }

func (s scaled) at(exponent int) *big.Int {
	n := new(big.Int).Mul(s.coefficient, tenTo(s.exponent-exponent))
	if s.negative {
		return n.Neg(n)
	}
	return n
}

func tenTo(n int) *big.Int { return new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(n)), nil) }

// without rounds the last n digits off, to the nearest, and a half to the even one.
func (s scaled) without(n int) scaled {
	if n <= 0 {
		return s
	}
	whole, rest := new(big.Int).QuoRem(s.coefficient, tenTo(n), new(big.Int))
	c := new(big.Int).Mul(rest, big.NewInt(2)).Cmp(tenTo(n))
	if c == 1 || (c == 0 && whole.Bit(0) == 1) {
		whole.Add(whole, big.NewInt(1))
	}
	return scaled{s.negative, whole, s.exponent + n}
}

func (s scaled) decimal() bson.Decimal128 {
	if s.coefficient.Sign() == 0 {
		s.exponent = max(min(s.exponent, maxDecimalExponent), minDecimalExponent)
	}
	s = s.without(max(s.digits()-decimalDigits, minDecimalExponent-s.exponent))
	if s.digits() > decimalDigits {
		s = s.without(1)
	}
	var sign uint64
	if s.negative {
		sign = 1 << 63
	}
	if over := s.exponent - maxDecimalExponent; over > 0 {
		if s.digits()+over > decimalDigits {
			return bson.NewDecimal128(sign|0x78<<56, 0)
		}
		s.coefficient, s.exponent = s.at(maxDecimalExponent), maxDecimalExponent
		s.coefficient.Abs(s.coefficient)
	}
	var b [16]byte
	s.coefficient.FillBytes(b[:])
	high := new(big.Int).SetBytes(b[:8]).Uint64()
	low := new(big.Int).SetBytes(b[8:]).Uint64()
	return bson.NewDecimal128(sign|uint64(s.exponent-minDecimalExponent)<<49|high, low)
}
