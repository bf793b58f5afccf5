package projection

import (
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// OpKind is the kind of an [Op]: the name of MongoDB's update operator.
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

// Op is one operator on one field. Field is a path with dots; a key that comes from data must be
// escaped with [EscapeKey] first. An update holds one operator for a field, and none for a field
// inside another's.
//
// No operator needs to be safe to repeat: the guard makes each event's writes happen once. But if
// many aggregates write to one document, no order between their events is guaranteed. Only these
// leave the same document in any order: [Inc], [Min], [Max], and [Mul] of a field that nothing else
// writes to. [Add] and [Mul] of doubles differ in their last digits, and so do decimals of more
// than 34 digits. [AddToSet] keeps the same members, in the order they came:
// Set("tags."+EscapeKey(tag), true) makes a set without order.
type Op struct {
	Kind  OpKind
	Field string
	Value any
}

// Set sets the field to a value, whatever it was.
func Set(field string, value any) Op { return Op{OpSet, field, value} }

// SetOnInsert sets the field to a value if this update creates the document.
func SetOnInsert(field string, value any) Op { return Op{OpSetOnInsert, field, value} }

// Unset removes the field.
func Unset(field string) Op { return Op{OpUnset, field, ""} }

// Inc adds to a whole number. A missing field counts as 0.
func Inc(field string, by int64) Op { return Op{OpInc, field, by} }

// Add is like [Inc] for numbers of any type: int32, int64, float64, [bson.Decimal128]. The sum has
// the wider type of the two, in this order; int32 widens to int64 if it must, and a sum that does
// not fit into an int64 is refused. Added to a decimal, a double counts with 15 digits. For amounts
// of money use [Inc] of cents, or decimals.
func Add(field string, by any) Op { return Op{OpInc, field, by} }

// Mul multiplies, with the types of [Add]. A missing field becomes 0, of the factor's type.
func Mul(field string, by any) Op { return Op{OpMul, field, by} }

// Min keeps the smaller of the field and the value, by BSON's comparison, which orders types before
// values: null, numbers, text, documents, arrays, binary data, ObjectIDs, booleans, dates. A
// missing field is set to the value; but [UpdateExisting] does nothing if there is no document.
func Min(field string, value any) Op { return Op{OpMin, field, value} }

// Max keeps the larger of the field and the value; see [Min].
func Max(field string, value any) Op { return Op{OpMax, field, value} }

// Truncate keeps the first size elements of an array.
func Truncate(field string, size int64) Op {
	return Op{OpPush, field, bson.D{{Key: "$each", Value: bson.A{}}, {Key: "$slice", Value: size}}}
}

// AddToSet appends the values that an array does not hold yet; a missing field becomes the array.
// Values are compared as a whole: numbers by value whatever their type, documents with the same
// fields in the same order. The array grows with every new value, and a document ends at 16 MB: use
// it only if there are few values.
func AddToSet(field string, values ...any) Op {
	return Op{OpAddToSet, field, bson.D{{Key: "$each", Value: append(bson.A{}, values...)}}}
}

// Pull removes every element of an array that equals one of the values, compared as in [AddToSet].
func Pull(field string, values ...any) Op { return Op{OpPullAll, field, append(bson.A{}, values...)} }

// PullWhere removes every element of an array that meets all the conditions. They name fields of
// the elements, if these are documents; or each has the field "", which is the element itself.
func PullWhere(field string, first Condition, more ...Condition) Op {
	conditions := append([]Condition{first}, more...)
	if first.Field != "" {
		return Op{OpPull, field, Filter(conditions)}
	}
	operators := bson.D{}
	for _, c := range conditions {
		if c.Field != "" {
			return Op{OpPull, field, nil} // Validate refuses it
		}
		operators = append(operators, bson.E{Key: string(c.Kind), Value: c.Value})
	}
	return Op{OpPull, field, operators}
}

// Validate returns what is wrong with the operator's value, as far as that is known without the
// document. The projector validates a projection's writes before it sends them to the database.
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
		if err != nil || !(bson.RawValue{Type: kind}).IsNumber() {
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
