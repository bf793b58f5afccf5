package projection

import (
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// OpKind is what an [Op] does, by the name of MongoDB's update operator.
type OpKind string

// The kinds.
const (
	OpSet         OpKind = "$set"
	OpSetOnInsert OpKind = "$setOnInsert"
	OpUnset       OpKind = "$unset"
	OpInc         OpKind = "$inc"
	OpMul         OpKind = "$mul"
	OpMin         OpKind = "$min"
	OpMax         OpKind = "$max"
	OpPush        OpKind = "$push"
	OpAddToSet    OpKind = "$addToSet"
	OpPull        OpKind = "$pull"
	OpPullAll     OpKind = "$pullAll"
)

// Op is one operator on one field. Field is a path with dots; a key that comes from data must be escaped with
// [EscapeKey] first. An update holds one operator for a field, and none for a field inside another's.
//
// No operator needs to be safe to repeat: the guard sees to it that each event's writes happen once. Where many aggregates feed
// one document, no order between their events is promised, and there these alone leave the same document in any order: [Inc];
// [Mul] of a field that nothing else writes to; [Min]; [Max]. [Add] and [Mul] of doubles differ in their last digits, as do those
// of decimals with more than 34. [AddToSet] keeps the same members, in the order they came: Set("tags."+EscapeKey(tag), true) makes
// a set without order.
type Op struct {
	Kind  OpKind
	Field string
	Value any
}

// Set gives the field a value, whatever it had.
func Set(field string, value any) Op { return Op{OpSet, field, value} }

// SetOnInsert gives the field a value when this very update makes the document.
func SetOnInsert(field string, value any) Op { return Op{OpSetOnInsert, field, value} }

// Unset removes the field.
func Unset(field string) Op { return Op{OpUnset, field, ""} }

// Inc adds to a whole number; a missing field counts as 0.
func Inc(field string, by int64) Op { return Op{OpInc, field, by} }

// Add is [Inc] for numbers of any type: int32, int64, float64, [bson.Decimal128]. The sum has the wider type of the two, in this
// order; int32 widens to int64 when it must, and a sum that no int64 holds is refused. With a decimal, a double counts with 15
// digits. Amounts of money are safe as [Inc] of cents, or as decimals.
func Add(field string, by any) Op { return Op{OpInc, field, by} }

// Mul multiplies, with types as [Add]; a missing field becomes 0, of the factor's type.
func Mul(field string, by any) Op { return Op{OpMul, field, by} }

// Min keeps the smaller of the field and the value, by BSON's comparison, which orders types before values: numbers, text,
// documents, arrays, binary data, ObjectIDs, booleans, dates. A missing field takes the value, and null is below all of these.
// Inside [UpdateExisting] only a document that is there already takes it.
func Min(field string, value any) Op { return Op{OpMin, field, value} }

// Max keeps the larger of the field and the value; see [Min].
func Max(field string, value any) Op { return Op{OpMax, field, value} }

// Truncate keeps the first size elements of an array.
func Truncate(field string, size int64) Op {
	return Op{OpPush, field, bson.D{{Key: "$each", Value: bson.A{}}, {Key: "$slice", Value: size}}}
}

// AddToSet appends the values that an array does not hold yet; a missing field becomes the array. Values are equal as wholes:
// numbers by value whatever their type, documents with the same fields in the same order. The array grows with every new
// value, and a document ends at 16 MB: use it for what is known to be few.
func AddToSet(field string, values ...any) Op {
	return Op{OpAddToSet, field, bson.D{{Key: "$each", Value: append(bson.A{}, values...)}}}
}

// Pull removes every element of an array that equals one of the values, as wholes as with [AddToSet].
func Pull(field string, values ...any) Op { return Op{OpPullAll, field, append(bson.A{}, values...)} }

// PullWhere removes every element of an array that meets all the conditions: they name fields of elements that are documents,
// or all have the field "", which is the element itself.
func PullWhere(field string, first Condition, more ...Condition) Op {
	conditions := append([]Condition{first}, more...)
	if first.Field != "" {
		return Op{OpPull, field, Filter(conditions)}
	}
	operators := bson.D{}
	for _, c := range conditions {
		if c.Field != "" {
			return Op{OpPull, field, nil} // Validate says so
		}
		operators = append(operators, bson.E{Key: string(c.Kind), Value: c.Value})
	}
	return Op{OpPull, field, operators}
}

// Validate says what is wrong with an operator's value, as far as no document is needed to tell. A projection's writes are
// held against it before the database sees them.
func (o Op) Validate() error {
	switch o.Kind {
	case OpSet, OpSetOnInsert, OpUnset, OpMin, OpMax, OpPush:
		return nil
	case OpInc, OpMul:
		switch o.Value.(type) {
		case int64, int32, int, float64, bson.Decimal128:
			return nil
		}
		kind, _, err := bson.MarshalValue(o.Value)
		if err != nil || !numeric(kind) {
			return fmt.Errorf("%s of %s needs a number (int32, int64, float64 or bson.Decimal128), not a %T", o.Kind, o.Field, o.Value)
		}
		return nil
	case OpAddToSet:
		if each, ok := o.Value.(bson.D); ok && len(each) == 1 && each[0].Key == "$each" {
			if _, ok := each[0].Value.(bson.A); ok {
				return nil
			}
		}
		return fmt.Errorf("%s of %s needs {$each: [values]}, which AddToSet makes", o.Kind, o.Field)
	case OpPullAll:
		if _, ok := o.Value.(bson.A); !ok {
			return fmt.Errorf("%s of %s needs a list of values, which Pull makes", o.Kind, o.Field)
		}
		return nil
	case OpPull:
		return o.validatePull()
	}
	return fmt.Errorf("the operator %q is not supported: Set, SetOnInsert, Unset, Inc, Add, Mul, Min, Max, Truncate, AddToSet, Pull and PullWhere are", o.Kind)
}

func (o Op) validatePull() error {
	d, ok := o.Value.(bson.D)
	if !ok || len(d) == 0 {
		return fmt.Errorf("PullWhere of %s needs conditions of fields of the elements, or conditions of the field \"\", which is the element itself; "+
			"not both", o.Field)
	}
	if d[0].Key == "" || d[0].Key[0] != '$' {
		return validateFilter(d)
	}
	return validateOperators("", d)
}

func numeric(kind bson.Type) bool {
	return kind == bson.TypeInt32 || kind == bson.TypeInt64 || kind == bson.TypeDouble || kind == bson.TypeDecimal128
}
