package memory

import (
	"fmt"
	"math"
	"math/bits"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// add returns the sum of two numbers; its type is the wider of theirs. [MongoDB
// src/mongo/util/safe_num.cpp]
func add(value, by any) (any, error) {
	return calculate(value, by, "the sum",
		func(x, y int64) (int64, bool) {
			sum := x + y
			return sum, (sum > x) == (y > 0)
		},
		func(x, y float64) float64 { return x + y },
		decimal.add)
}

// multiply returns the product of two numbers.
func multiply(value, by any) (any, error) {
	return calculate(value, by, "the product",
		func(x, y int64) (int64, bool) {
			high, low := bits.Mul64(magnitude(x), magnitude(y))
			negative := (x < 0) != (y < 0)
			return x * y, high == 0 && (low <= math.MaxInt64 || (negative && low == 1<<63))
		},
		func(x, y float64) float64 { return x * y },
		decimal.multiply)
}

func magnitude(x int64) uint64 {
	if x < 0 {
		return -uint64(x)
	}
	return uint64(x)
}

func calculate(value, by any, what string, wholes func(x, y int64) (int64, bool), doubles func(x, y float64) float64,
	decimals func(x, y decimal) decimal,
) (any, error) {
	if class(value) != classNumber || class(by) != classNumber {
		return nil, fmt.Errorf("%w: %s needs two numbers, not %s and %s", ErrRefused, what, Text(value), Text(by))
	}
	result, err := widest(value, by, what, wholes, doubles, decimals)
	if err != nil {
		return nil, err
	}
	// A result of the same type and value is no change: 1.0 stays 1.0 if 0.00 is added, and -0
	// stays -0.
	if fmt.Sprintf("%T", result) == fmt.Sprintf("%T", value) && compareNumbers(result, value) == 0 {
		return value, nil
	}
	return result, nil
}

func widest(value, by any, what string, wholes func(x, y int64) (int64, bool), doubles func(x, y float64) float64,
	decimals func(x, y decimal) decimal,
) (any, error) {
	_, aDecimal := value.(bson.Decimal128)
	_, bDecimal := by.(bson.Decimal128)
	if aDecimal || bDecimal {
		x, y := decimalOf(value), decimalOf(by)
		if x.nan || y.nan || x.infinite || y.infinite { // the server's results are not known
			return nil, fmt.Errorf("%w: calculating with a decimal that is infinite or not a number", ErrUnsupported)
		}
		return decimals(x, y).encode(), nil
	}
	_, aDouble := value.(float64)
	_, bDouble := by.(float64)
	if aDouble || bDouble {
		return doubles(double(value), double(by)), nil
	}
	result, fits := wholes(whole(value), whole(by))
	if !fits {
		return nil, fmt.Errorf("%w: %s overflows", ErrRefused, what)
	}
	_, narrow := value.(int32)
	_, small := by.(int32)
	if narrow && small && result == int64(int32(result)) {
		return int32(result), nil
	}
	return result, nil
}

// whole returns an int32 or int64 as an int64.
func whole(v any) int64 {
	if n, ok := v.(int32); ok {
		return int64(n)
	}
	n, _ := v.(int64)
	return n
}

// double returns a number that is not a decimal, as a float64.
func double(v any) float64 {
	if f, ok := v.(float64); ok {
		return f
	}
	return float64(whole(v))
}
