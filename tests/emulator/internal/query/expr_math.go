package query

import (
	"maps"
	"math"
	"math/big"
	"math/rand/v2"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/mongoerr"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/value"
)

func init() {
	maps.Copy(operators, map[string]operator{
		"$pow":    {2, 2, pow},
		"$sqrt":   {1, 1, real1("$sqrt", 28714, "$sqrt's argument must be greater than or equal to 0", func(x float64) bool { return x >= 0 }, math.Sqrt)},
		"$exp":    {1, 1, real1("$exp", 0, "", nil, math.Exp)},
		"$ln":     {1, 1, real1("$ln", 28766, "$ln's argument must be a positive number", func(x float64) bool { return x > 0 }, math.Log)},
		"$log10":  {1, 1, real1("$log10", 28761, "$log10's argument must be a positive number", func(x float64) bool { return x > 0 }, math.Log10)},
		"$log":    {2, 2, logarithm},
		"$round":  {1, 2, places("$round", math.RoundToEven)},
		"$trunc":  {1, 2, places("$trunc", math.Trunc)},
		"$bitAnd": {0, -1, bits("$bitAnd", -1, func(a, b int64) int64 { return a & b })},
		"$bitOr":  {0, -1, bits("$bitOr", 0, func(a, b int64) int64 { return a | b })},
		"$bitXor": {0, -1, bits("$bitXor", 0, func(a, b int64) int64 { return a ^ b })},
		"$bitNot": {1, 1, bitNot},
		"$avg":    {0, -1, average},
	})
	for name, f := range map[string]func(float64) float64{
		"$sin": math.Sin, "$cos": math.Cos, "$tan": math.Tan, "$asin": math.Asin, "$acos": math.Acos, "$atan": math.Atan,
		"$sinh": math.Sinh, "$cosh": math.Cosh, "$tanh": math.Tanh,
		"$degreesToRadians": func(x float64) float64 { return x * math.Pi / 180 }, "$radiansToDegrees": func(x float64) float64 { return x * 180 / math.Pi },
	} {
		operators[name] = operator{1, 1, real1(name, 0, "", nil, f)}
	}
	special["$rand"] = func(any) (*Expr, error) {
		return &Expr{func(*scope) (any, error) { return rand.Float64(), nil }}, nil //nolint:gosec // not for secrets
	}
}

// real returns a number as a double; a decimal would need digits that a double has not.
func real(op string, v any) (float64, error) {
	if isDecimal(v) {
		return 0, mongoerr.Unsupported("%s on Decimal128", op)
	}
	f, ok := value.AsFloat(v)
	if !ok {
		return 0, mongoerr.New(28765, "%s only supports numeric types, not %s", op, TypeName(v))
	}
	return f, nil
}

// real1 returns a function of one double; inside reports whether it is defined, code and why are
// the error otherwise.
func real1(op string, code int32, why string, inside func(float64) bool, f func(float64) float64) func([]any) (any, error) {
	return func(a []any) (any, error) {
		if nullish(a[0]) {
			return nil, nil
		}
		x, err := real(op, a[0])
		if err != nil {
			return nil, err
		}
		if inside != nil && !math.IsNaN(x) && !inside(x) {
			return nil, mongoerr.New(code, "%s, but is %v", why, x)
		}
		return f(x), nil
	}
}

func logarithm(a []any) (any, error) {
	if nullish(a[0]) || nullish(a[1]) {
		return nil, nil
	}
	x, err := real("$log", a[0])
	if err != nil {
		return nil, err
	}
	base, err := real("$log", a[1])
	if err != nil {
		return nil, err
	}
	if x <= 0 {
		return nil, mongoerr.New(28758, "$log's argument must be a positive number, but is %v", x)
	}
	if base <= 0 || base == 1 {
		return nil, mongoerr.New(28759, "$log's base must be a positive number not equal to 1, but is %v", base)
	}
	return math.Log(x) / math.Log(base), nil
}

// pow stays among whole numbers as long as the result is one that fits.
func pow(a []any) (any, error) {
	if nullish(a[0]) || nullish(a[1]) {
		return nil, nil
	}
	x, err := real("$pow", a[0])
	if err != nil {
		return nil, err
	}
	y, err := real("$pow", a[1])
	if err != nil {
		return nil, err
	}
	if x == 0 && y < 0 {
		return nil, mongoerr.New(28764, "$pow cannot take a base of 0 and a negative exponent")
	}
	_, xf := a[0].(float64)
	_, yf := a[1].(float64)
	if xf || yf || y < 0 {
		return math.Pow(x, y), nil
	}
	base, _ := value.AsInt(a[0])
	exponent, _ := value.AsInt(a[1])
	if exponent > 64 && base != 0 && base != 1 && base != -1 {
		return math.Pow(x, y), nil
	}
	if base == -1 {
		exponent %= 2
	}
	r := new(big.Int).Exp(big.NewInt(base), big.NewInt(min(exponent, 64)), nil)
	if !r.IsInt64() {
		return math.Pow(x, y), nil
	}
	_, xl := a[0].(int64)
	_, yl := a[1].(int64)
	if n := r.Int64(); xl || yl || n < math.MinInt32 || n > math.MaxInt32 {
		return n, nil
	}
	return int32(r.Int64()), nil
}

// places rounds to so many digits after the point, before it where they are negative.
func places(op string, f func(float64) float64) func([]any) (any, error) {
	return func(a []any) (any, error) {
		if nullish(a[0]) || (len(a) == 2 && nullish(a[1])) {
			return nil, nil
		}
		digits := int64(0)
		if len(a) == 2 {
			var ok bool
			if digits, ok = value.AsInt(a[1]); !ok || digits < -20 || digits > 100 {
				return nil, mongoerr.New(51083, "cannot apply %s with precision value %v value must be in [-20, 100]", op, a[1])
			}
		}
		x, err := real(op, a[0])
		if err != nil {
			return nil, err
		}
		if _, isDouble := a[0].(float64); !isDouble {
			return wholePlaces(op, a[0], digits)
		}
		if digits > 15 || math.IsInf(x, 0) || math.IsNaN(x) {
			return x, nil
		}
		scale := math.Pow(10, math.Abs(float64(digits)))
		if digits < 0 {
			return f(x/scale) * scale, nil
		}
		return f(x*scale) / scale, nil
	}
}

func wholePlaces(op string, v any, digits int64) (any, error) {
	n, _ := value.AsInt(v)
	if digits < 0 {
		r := scaled{n < 0, new(big.Int).Abs(big.NewInt(n)), 0}
		if op == "$trunc" {
			r.coefficient.Quo(r.coefficient, tenTo(int(-digits)))
			r.exponent = int(-digits)
		} else {
			r = r.without(int(-digits))
		}
		whole := r.at(0)
		if !whole.IsInt64() {
			return nil, mongoerr.New(51080, "invalid conversion from Decimal128 result in %s", op)
		}
		n = whole.Int64()
	}
	if _, long := v.(int64); long || n < math.MinInt32 || n > math.MaxInt32 {
		return n, nil
	}
	return int32(n), nil
}

func bits(op string, none int64, f func(a, b int64) int64) func([]any) (any, error) {
	return func(a []any) (any, error) {
		acc, long := none, false
		for _, v := range a {
			switch t := v.(type) {
			case nil, value.Missing:
				return nil, nil
			case int32:
				acc = f(acc, int64(t))
			case int64:
				acc, long = f(acc, t), true
			default:
				return nil, mongoerr.New(mongoerr.TypeMismatch, "%s only supports int and long operands, not %s", op, TypeName(v))
			}
		}
		if long {
			return acc, nil
		}
		return int32(acc), nil
	}
}

func bitNot(a []any) (any, error) {
	switch t := a[0].(type) {
	case nil, value.Missing:
		return nil, nil
	case int32:
		return ^t, nil
	case int64:
		return ^t, nil
	}
	return nil, mongoerr.New(mongoerr.TypeMismatch, "$bitNot only supports int and long, not %s", TypeName(a[0]))
}

func average(a []any) (any, error) {
	if len(a) == 1 {
		if list, ok := a[0].(bson.A); ok {
			a = list
		}
	}
	var sum any = int32(0)
	n := int32(0)
	for _, v := range a {
		if value.Class(v) != 10 {
			continue
		}
		var err error
		if sum, err = add(sum, v); err != nil {
			return nil, err
		}
		n++
	}
	if n == 0 {
		return nil, nil
	}
	return divide([]any{sum, n})
}
