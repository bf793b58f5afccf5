package memory

import (
	"math"
	"math/big"
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// The bounds of a Decimal128. [IEEE 754-2008, table 3.6; BSON specification, decimal128]
const (
	digits      = 34
	minExponent = -6176
	maxExponent = 6111
)

// decimal is a decimal number of any precision: ± coefficient × 10^exponent, infinite, or not a
// number.
type decimal struct {
	negative    bool
	coefficient *big.Int
	exponent    int
	infinite    bool
	nan         bool
}

// decimalOf returns a number as a decimal: whole numbers exactly, doubles with 15 digits, as in the
// server's update operators. [MongoDB src/mongo/util/safe_num.cpp, getDecimal;
// src/mongo/platform/decimal128.cpp, kRoundTo15Digits]
func decimalOf(v any) decimal {
	switch n := v.(type) {
	case bson.Decimal128:
		high, _ := n.GetBytes()
		d := decimal{negative: high>>63 == 1, nan: n.IsNaN(), infinite: n.IsInf() != 0}
		if d.nan || d.infinite {
			return d
		}
		coefficient, exponent, err := n.BigInt()
		if err != nil {
			return decimal{nan: true}
		}
		d.coefficient, d.exponent = coefficient.Abs(coefficient), exponent
		return d
	case float64:
		return decimalOfDouble(n)
	}
	n := big.NewInt(whole(v))
	return decimal{negative: n.Sign() < 0, coefficient: n.Abs(n)}
}

func decimalOfDouble(f float64) decimal {
	d := decimal{negative: math.Signbit(f), nan: math.IsNaN(f), infinite: math.IsInf(f, 0), coefficient: new(big.Int)}
	if d.nan || d.infinite || f == 0 {
		return d
	}
	// The server first converts all digits to a decimal, and then rounds to 15.
	text, exponent, _ := strings.Cut(strconv.FormatFloat(math.Abs(f), 'e', digits-1, 64), "e")
	d.coefficient.SetString(strings.Replace(text, ".", "", 1), 10)
	d.exponent, _ = strconv.Atoi(exponent)
	d.exponent -= digits - 1
	const precise = 15
	d = d.drop(d.length() - precise)
	if d.length() > precise {
		d = d.drop(1)
	}
	return d
}

// add returns the sum of two finite decimals.
func (d decimal) add(e decimal) decimal {
	exponent := min(d.exponent, e.exponent)
	sum := new(big.Int).Add(d.scaled(exponent), e.scaled(exponent))
	negative := sum.Sign() < 0 || (sum.Sign() == 0 && d.negative && e.negative)
	return decimal{negative: negative, coefficient: sum.Abs(sum), exponent: exponent}
}

// multiply returns the product of two finite decimals.
func (d decimal) multiply(e decimal) decimal {
	return decimal{
		negative: d.negative != e.negative, coefficient: new(big.Int).Mul(d.coefficient, e.coefficient), exponent: d.exponent + e.exponent,
	}
}

// length returns the number of the coefficient's digits.
func (d decimal) length() int { return len(d.coefficient.Text(10)) }

// scaled returns the coefficient with its sign, scaled to a smaller exponent.
func (d decimal) scaled(exponent int) *big.Int {
	n := new(big.Int).Mul(d.coefficient, power(d.exponent-exponent))
	if d.negative {
		n.Neg(n)
	}
	return n
}

func power(exponent int) *big.Int {
	return new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(exponent)), nil)
}

// drop rounds the last n digits away, half to even.
func (d decimal) drop(n int) decimal {
	if n <= 0 {
		return d
	}
	unit := power(n)
	quotient, rest := new(big.Int).QuoRem(d.coefficient, unit, new(big.Int))
	if half := rest.Lsh(rest, 1).Cmp(unit); half > 0 || (half == 0 && quotient.Bit(0) == 1) {
		quotient.Add(quotient, big.NewInt(1))
	}
	d.coefficient, d.exponent = quotient, d.exponent+n
	return d
}

// encode rounds to a Decimal128. A number that is too large becomes infinity.
func (d decimal) encode() bson.Decimal128 {
	const infinity = 0x78 << 56
	var sign uint64
	if d.negative {
		sign = 1 << 63
	}
	if d.coefficient.Sign() == 0 {
		d.exponent = min(max(d.exponent, minExponent), maxExponent)
	}
	d = d.drop(max(d.length()-digits, minExponent-d.exponent))
	if d.length() > digits { // all digits were nines
		d = d.drop(1)
	}
	if over := d.exponent - maxExponent; over > 0 {
		if d.length()+over > digits {
			return bson.NewDecimal128(sign|infinity, 0)
		}
		d.coefficient, d.exponent = new(big.Int).Mul(d.coefficient, power(over)), maxExponent
	}
	high, low := new(big.Int).Rsh(d.coefficient, 64).Uint64(), new(big.Int).And(d.coefficient, new(big.Int).SetUint64(math.MaxUint64)).Uint64()
	return bson.NewDecimal128(sign|uint64(d.exponent-minExponent)<<49|high, low)
}
