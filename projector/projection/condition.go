package projection

import (
	"fmt"
	"math"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// CompareKind is the operator of a [Condition]: the name of MongoDB's query operator.
type CompareKind string

// The kinds.
const (
	CompareEq     CompareKind = "$eq"
	CompareLt     CompareKind = "$lt"
	CompareLte    CompareKind = "$lte"
	CompareGt     CompareKind = "$gt"
	CompareGte    CompareKind = "$gte"
	CompareExists CompareKind = "$exists"
)

// Condition compares one field of a document with a value. Field is a path with dots. Only values
// of the same type can meet a condition, and all numbers are of one type: neither a missing field
// nor a text meets Lt("n", 1). An array meets a condition if one of its elements does.
//
// The value is a number (but not NaN), a text, a boolean, a time, a timestamp or an ObjectID.
// Nothing else is supported.
type Condition struct {
	Field string
	Kind  CompareKind
	Value any
}

// Eq returns a condition that is met by a field that equals the value.
func Eq(field string, value any) Condition { return Condition{field, CompareEq, value} }

// Lt returns a condition that is met by a field below the value.
func Lt(field string, value any) Condition { return Condition{field, CompareLt, value} }

// Lte returns a condition that is met by a field at or below the value.
func Lte(field string, value any) Condition { return Condition{field, CompareLte, value} }

// Gt returns a condition that is met by a field above the value.
func Gt(field string, value any) Condition { return Condition{field, CompareGt, value} }

// Gte returns a condition that is met by a field at or above the value.
func Gte(field string, value any) Condition { return Condition{field, CompareGte, value} }

// Missing returns a condition that is met if there is no such field. A field that is null is not
// missing.
func Missing(field string) Condition { return Condition{field, CompareExists, false} }

// Filter translates conditions into MongoDB's query language. A field may be named more than once.
func Filter(conditions []Condition) bson.D {
	filter := make(bson.D, 0, len(conditions))
	for _, c := range conditions {
		filter = append(filter, bson.E{Key: c.Field, Value: bson.D{{Key: string(c.Kind), Value: c.Value}}})
	}
	return filter
}

// Validate returns what is wrong with a deletion's conditions.
func (w DeleteOne) Validate() error { return validateFilter(Filter(w.If)) }

func validateFilter(filter bson.D) error {
	for _, e := range filter {
		operators, ok := e.Value.(bson.D)
		if !ok || e.Key == "" || e.Key[0] == '$' {
			return fmt.Errorf("a condition names a field of the document and compares it by Eq, Lt, Lte, Gt, Gte or Missing; %q does not", e.Key)
		}
		if err := validateOperators(e.Key, operators); err != nil {
			return err
		}
	}
	return nil
}

func validateOperators(field string, operators bson.D) error {
	for _, o := range operators {
		switch kind := CompareKind(o.Key); kind {
		case CompareExists:
			if o.Value != any(false) {
				return fmt.Errorf("the condition %s of %q is not supported: Missing is", kind, field)
			}
		case CompareEq, CompareLt, CompareLte, CompareGt, CompareGte:
			if !comparableValue(o.Value) {
				return fmt.Errorf("the condition %s of %q needs a number but NaN, a text, a boolean, a time, a timestamp or an ObjectID, not a %T",
					kind, field, o.Value)
			}
		default:
			return fmt.Errorf("the condition %s of %q is not supported: Eq, Lt, Lte, Gt, Gte and Missing are", kind, field)
		}
	}
	return nil
}

// comparableValue reports whether a value is of a type that MongoDB and package memory compare
// alike.
func comparableValue(value any) bool {
	kind, data, err := bson.MarshalValue(value)
	if err != nil {
		return false
	}
	v := bson.RawValue{Type: kind, Value: data}
	if f, ok := v.DoubleOK(); ok {
		return !math.IsNaN(f)
	}
	if d, ok := v.Decimal128OK(); ok {
		return !d.IsNaN()
	}
	return slices.Contains([]bson.Type{
		bson.TypeString, bson.TypeBoolean, bson.TypeDateTime, bson.TypeTimestamp, bson.TypeObjectID, bson.TypeInt32, bson.TypeInt64,
	}, kind)
}
