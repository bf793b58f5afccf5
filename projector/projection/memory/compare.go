package memory

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"math/big"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

const classNumber = 3

// class is a value's place in BSON's order of types; 0 for a type that is not compared here.
// [https://www.mongodb.com/docs/manual/reference/bson-type-comparison-order/]
func class(v any) int {
	switch v.(type) {
	case bson.MinKey:
		return 1
	case nil, bson.Undefined:
		return 2
	case int32, int64, float64:
		return classNumber
	case string, bson.Symbol:
		return 4
	case bson.D:
		return 5
	case bson.A:
		return 6
	case bson.Binary:
		return 7
	case bson.ObjectID:
		return 8
	case bool:
		return 9
	case bson.DateTime:
		return 10
	case bson.Timestamp:
		return 11
	case bson.MaxKey:
		return 13
	}
	return 0
}

// compare orders two values as $min and $max do. Inside one type it knows those that one takes the smallest of; else the
// error is an [ErrUnsupported].
func compare(a, b any) (int, error) {
	x, y := class(a), class(b)
	if x == 0 || y == 0 {
		return 0, fmt.Errorf("%w: comparing a %T with a %T", ErrUnsupported, a, b)
	}
	if x != y {
		return cmp.Compare(x, y), nil
	}
	switch v := a.(type) {
	case nil, bson.MinKey, bson.MaxKey, bson.Undefined:
		return 0, nil
	case int32, int64, float64:
		return compareNumbers(a, b), nil
	case string:
		if w, ok := b.(string); ok {
			return strings.Compare(v, w), nil
		}
	case bson.ObjectID:
		w, _ := b.(bson.ObjectID)
		return bytes.Compare(v[:], w[:]), nil
	case bool:
		w, _ := b.(bool)
		switch {
		case v == w:
			return 0, nil
		case w:
			return -1, nil
		}
		return 1, nil
	case bson.DateTime:
		w, _ := b.(bson.DateTime)
		return cmp.Compare(v, w), nil
	case bson.Timestamp:
		w, _ := b.(bson.Timestamp)
		return cmp.Or(cmp.Compare(v.T, w.T), cmp.Compare(v.I, w.I)), nil
	}
	return 0, fmt.Errorf("%w: comparing two values of type %T", ErrUnsupported, a)
}

// compareNumbers compares exactly, whatever the types; NaN is below everything.
func compareNumbers(a, b any) int {
	f, aDouble := a.(float64)
	g, bDouble := b.(float64)
	switch {
	case !aDouble && !bDouble:
		return cmp.Compare(whole(a), whole(b))
	case aDouble && bDouble:
		return cmp.Compare(f, g)
	case bDouble:
		return -compareNumbers(b, a)
	case math.IsNaN(f):
		return -1
	case math.IsInf(f, 0):
		return cmp.Compare(f, 0)
	}
	return big.NewFloat(f).Cmp(new(big.Float).SetInt64(whole(b)))
}
