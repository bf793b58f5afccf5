package memory

import (
	"bytes"
	"cmp"
	"fmt"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/shared/mongodb"
)

// The places of types in BSON's order.
// [https://www.mongodb.com/docs/manual/reference/bson-type-comparison-order/]
const (
	classNone = iota // a type that is not compared here
	classMinKey
	classUndefined
	classNull
	classNumber
	classText
	classDocument
	classArray
	classBinary
	classObjectID
	classBoolean
	classDate
	classTimestamp
	classRegex
	classMaxKey
)

// class returns a value's place in BSON's order of types.
func class(v any) int {
	switch v.(type) {
	case bson.MinKey:
		return classMinKey
	case bson.Undefined:
		return classUndefined
	case nil:
		return classNull
	case int32, int64, float64, bson.Decimal128:
		return classNumber
	case string, bson.Symbol:
		return classText
	case bson.D:
		return classDocument
	case bson.A:
		return classArray
	case bson.Binary:
		return classBinary
	case bson.ObjectID:
		return classObjectID
	case bool:
		return classBoolean
	case bson.DateTime:
		return classDate
	case bson.Timestamp:
		return classTimestamp
	case bson.Regex:
		return classRegex
	case bson.MaxKey:
		return classMaxKey
	}
	return classNone
}

// compare orders two values as $min, $max, $addToSet and $pull do. For code and DBPointers the
// error is an [ErrUnsupported].
func compare(a, b any) (int, error) {
	x, y := class(a), class(b)
	if x == classNone || y == classNone {
		return 0, fmt.Errorf("%w: comparing a %T with a %T", ErrUnsupported, a, b)
	}
	if x != y {
		return cmp.Compare(x, y), nil
	}
	switch v := a.(type) {
	case int32, int64, float64, bson.Decimal128:
		return compareNumbers(a, b), nil
	case string, bson.Symbol:
		return strings.Compare(textOf(a), textOf(b)), nil
	case bson.D:
		w, _ := b.(bson.D)
		return compareDocuments(v, w)
	case bson.A:
		w, _ := b.(bson.A)
		return compareArrays(v, w)
	case bson.Binary:
		w, _ := b.(bson.Binary)
		return cmp.Or(cmp.Compare(len(v.Data), len(w.Data)), cmp.Compare(v.Subtype, w.Subtype), bytes.Compare(v.Data, w.Data)), nil
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
	case bson.Regex:
		w, _ := b.(bson.Regex)
		return cmp.Or(strings.Compare(v.Pattern, w.Pattern), strings.Compare(v.Options, w.Options)), nil
	}
	return 0, nil // null, undefined, the least and the greatest key have one value each
}

func textOf(v any) string {
	if s, ok := v.(bson.Symbol); ok {
		return string(s)
	}
	s, _ := v.(string)
	return s
}

// compareDocuments compares field by field, in order: the type of the value, then the name, then
// the value.
func compareDocuments(a, b bson.D) (int, error) {
	for i := range min(len(a), len(b)) {
		if order := cmp.Or(cmp.Compare(class(a[i].Value), class(b[i].Value)), strings.Compare(a[i].Key, b[i].Key)); order != 0 {
			return order, nil
		}
		if order, err := compare(a[i].Value, b[i].Value); order != 0 || err != nil {
			return order, err
		}
	}
	return cmp.Compare(len(a), len(b)), nil
}

func compareArrays(a, b bson.A) (int, error) {
	for i := range min(len(a), len(b)) {
		if order, err := compare(a[i], b[i]); order != 0 || err != nil {
			return order, err
		}
	}
	return cmp.Compare(len(a), len(b)), nil
}

// compareNumbers compares exactly, whatever the types; NaN is below everything.
func compareNumbers(a, b any) int {
	switch n := a.(type) { // a set of the usual types may be large
	case int32, int64:
		switch b.(type) {
		case int32, int64:
			return cmp.Compare(whole(a), whole(b))
		}
	case float64:
		if f, ok := b.(float64); ok {
			return cmp.Compare(n, f)
		}
	}
	return mongodb.Compare(rawNumber(a), rawNumber(b))
}

func rawNumber(n any) bson.RawValue {
	kind, value, _ := bson.MarshalValue(n) // no number is refused
	return bson.RawValue{Type: kind, Value: value}
}
