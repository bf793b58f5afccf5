package query

import (
	"math"
	"math/big"
	"slices"
	"strconv"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/mongoerr"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/value"
)

// fold applies a binary operation from left to right; null anywhere gives null.
func fold(name string, f func(a, b any) (any, error)) func([]any) (any, error) {
	return func(args []any) (any, error) {
		if len(args) == 0 {
			if name == "$multiply" {
				return int32(1), nil
			}
			return int32(0), nil
		}
		if slices.ContainsFunc(args, nullish) {
			return nil, nil
		}
		acc := args[0]
		if len(args) == 1 && value.Class(acc) != 10 && value.Class(acc) != 45 {
			return nil, mongoerr.New(mongoerr.TypeMismatch, "%s only supports numeric or date types, not %s", name, TypeName(acc))
		}
		for _, v := range args[1:] {
			var err error
			if acc, err = f(acc, v); err != nil {
				return nil, err
			}
		}
		return acc, nil
	}
}

func add(a, b any) (any, error) {
	if d, ok := a.(bson.DateTime); ok && value.Class(b) == 10 {
		ms, _ := value.AsFloat(b)
		return d + bson.DateTime(ms), nil
	}
	if d, ok := b.(bson.DateTime); ok && value.Class(a) == 10 {
		ms, _ := value.AsFloat(a)
		return d + bson.DateTime(ms), nil
	}
	return arithmetic("$add", a, b,
		func(x, y int64) (int64, bool) { s := x + y; return s, (s > x) == (y > 0) },
		func(x, y float64) float64 { return x + y })
}

// total is like add for $sum and $avg.
func total(a, b any) (any, error) {
	if isDecimal(a) || isDecimal(b) {
		return decimals("$add", a, b, decimalDigits)
	}
	return add(a, b)
}

func subtract(a, b any) (any, error) {
	if d, ok := a.(bson.DateTime); ok {
		if e, ok := b.(bson.DateTime); ok {
			return int64(d - e), nil
		}
		if ms, ok := value.AsFloat(b); ok {
			return d - bson.DateTime(ms), nil
		}
	}
	return arithmetic("$subtract", a, b,
		func(x, y int64) (int64, bool) { s := x - y; return s, (s < x) == (y > 0) },
		func(x, y float64) float64 { return x - y })
}

func multiply(a, b any) (any, error) {
	return arithmetic("$multiply", a, b,
		func(x, y int64) (int64, bool) {
			p := new(big.Int).Mul(big.NewInt(x), big.NewInt(y))
			return p.Int64(), p.IsInt64()
		},
		func(x, y float64) float64 { return x * y })
}

// arithmetic follows the server's promotion: int to long on overflow, long to
// double in expressions, anything with a double to double.
func arithmetic(name string, a, b any, ints func(x, y int64) (int64, bool), floats func(x, y float64) float64) (any, error) {
	if value.Class(a) != 10 || value.Class(b) != 10 {
		return nil, mongoerr.New(mongoerr.TypeMismatch, "%s only supports numeric types, not %s and %s", name, TypeName(a), TypeName(b))
	}
	if isDecimal(a) || isDecimal(b) {
		return decimals(name, a, b, digitsOfDouble)
	}
	_, xf := a.(float64)
	_, yf := b.(float64)
	if !xf && !yf {
		x, _ := value.AsInt(a)
		y, _ := value.AsInt(b)
		r, fits := ints(x, y)
		_, xl := a.(int64)
		_, yl := b.(int64)
		switch {
		case fits && !xl && !yl && r >= math.MinInt32 && r <= math.MaxInt32:
			return int32(r), nil
		case fits || (x == 0 || y == 0):
			return r, nil
		}
	}
	x, _ := value.AsFloat(a)
	y, _ := value.AsFloat(b)
	return floats(x, y), nil
}

func isDecimal(v any) bool { _, ok := v.(bson.Decimal128); return ok }

func divide(a []any) (any, error) {
	if nullish(a[0]) || nullish(a[1]) {
		return nil, nil
	}
	x, ok1 := value.AsFloat(a[0])
	y, ok2 := value.AsFloat(a[1])
	if !ok1 || !ok2 {
		return nil, mongoerr.New(mongoerr.TypeMismatch, "$divide only supports numeric types, not %s and %s", TypeName(a[0]), TypeName(a[1]))
	}
	if y == 0 {
		return nil, mongoerr.New(mongoerr.BadValue, "can't $divide by zero")
	}
	if isDecimal(a[0]) || isDecimal(a[1]) {
		return decimals("$divide", a[0], a[1], digitsOfDouble)
	}
	return x / y, nil
}

func mod(a []any) (any, error) {
	if nullish(a[0]) || nullish(a[1]) {
		return nil, nil
	}
	x, ok1 := a[0], value.Class(a[0]) == 10
	y, ok2 := a[1], value.Class(a[1]) == 10
	if !ok1 || !ok2 {
		return nil, mongoerr.New(16611, "$mod only supports numeric types")
	}
	if f, _ := value.AsFloat(y); f == 0 {
		return nil, mongoerr.New(16610, "can't $mod by zero")
	}
	return arithmetic("$mod", x, y, func(p, q int64) (int64, bool) { return p % q, true }, math.Mod)
}

func abs(a []any) (any, error) {
	if nullish(a[0]) {
		return nil, nil
	}
	if f, ok := value.AsFloat(a[0]); ok && f >= 0 {
		return a[0], nil
	}
	return subtract(int32(0), a[0])
}

func rounding(f func(float64) float64) func([]any) (any, error) {
	return func(a []any) (any, error) {
		switch t := a[0].(type) {
		case nil, value.Missing:
			return nil, nil
		case int32, int64:
			return t, nil
		case float64:
			return f(t), nil
		case bson.Decimal128:
			return nil, mongoerr.Unsupported("rounding a Decimal128")
		}
		return nil, mongoerr.New(28765, "rounding only supports numeric types, not %s", TypeName(a[0]))
	}
}

func toDouble(v any) (any, error) {
	switch t := v.(type) {
	case nil, value.Missing:
		return nil, nil
	case string:
		f, err := strconv.ParseFloat(t, 64)
		if err != nil {
			return nil, mongoerr.New(241, "Failed to parse number '%s' in $convert with no onError value", t)
		}
		return f, nil
	case bool:
		if t {
			return 1.0, nil
		}
		return 0.0, nil
	case bson.DateTime:
		return float64(t), nil
	}
	if f, ok := value.AsFloat(v); ok {
		return f, nil
	}
	return nil, mongoerr.New(241, "Unsupported conversion from %s to double in $convert with no onError value", TypeName(v))
}

func toLong(v any) (any, error) {
	if s, ok := v.(string); ok {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return nil, mongoerr.New(241, "Failed to parse number '%s' in $convert with no onError value", s)
		}
		return n, nil
	}
	if d, ok := v.(bson.DateTime); ok {
		return int64(d), nil
	}
	if n, ok := v.(int64); ok {
		return n, nil
	}
	f, err := toDouble(v)
	if err != nil || f == nil {
		return f, err
	}
	if g := math.Trunc(f.(float64)); math.Abs(g) < 1<<63 {
		return int64(g), nil
	}
	return nil, mongoerr.New(241, "Conversion would overflow target type in $convert with no onError value")
}

func toInt(v any) (any, error) {
	n, err := toLong(v)
	if err != nil || n == nil {
		return n, err
	}
	if i := n.(int64); i >= math.MinInt32 && i <= math.MaxInt32 {
		return int32(i), nil
	}
	return nil, mongoerr.New(241, "Conversion would overflow target type in $convert with no onError value")
}
