package query

import (
	"math"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/mongoerr"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/value"
)

// bitLeaf is $bitsAllSet and its like: the bits are named by a mask, by their positions, or by the
// bytes of a binary value.
func bitLeaf(op string, arg any) (leaf, error) {
	var positions []int64
	switch t := arg.(type) {
	case bson.A:
		for _, v := range t {
			n, ok := value.AsInt(v)
			if !ok || n < 0 {
				return leaf{}, mongoerr.New(mongoerr.FailedToParse, "bit positions must be whole numbers >= 0, found %v", v)
			}
			positions = append(positions, n)
		}
	case bson.Binary:
		for i := range int64(len(t.Data)) * 8 {
			if t.Data[i/8]>>(i%8)&1 == 1 {
				positions = append(positions, i)
			}
		}
	default:
		n, ok := value.AsInt(arg)
		if !ok || n < 0 {
			return leaf{}, mongoerr.New(mongoerr.FailedToParse, "%s takes an Array, a number, or a BinData but received: %v", op, arg)
		}
		for i := range int64(63) {
			if n>>i&1 == 1 {
				positions = append(positions, i)
			}
		}
	}
	wanted, some := strings.HasSuffix(op, "Set"), strings.Contains(op, "Any")
	return leaf{elements: true, test: func(v any) (bool, error) {
		isSet := bitReader(v)
		if isSet == nil {
			return false, nil
		}
		for _, p := range positions {
			if (isSet(p) == wanted) == some {
				return some, nil
			}
		}
		return !some, nil
	}}, nil
}

// bitReader reads the bits of a whole number, beyond its own 64 its sign's, or of a binary value;
// nil for anything else.
func bitReader(v any) func(position int64) bool {
	if b, ok := v.(bson.Binary); ok {
		return func(p int64) bool { return p/8 < int64(len(b.Data)) && b.Data[p/8]>>(p%8)&1 == 1 }
	}
	n, ok := value.AsInt(v)
	if !ok {
		return nil
	}
	return func(p int64) bool { return n>>min(p, 63)&1 == 1 }
}

// bitwise returns the update operator $bit.
func bitwise(e *editor, m modifier) error {
	old, ok := e.get(m.parts)
	if !ok {
		old = int32(0)
	}
	n, isInt := value.AsInt(old)
	switch old.(type) {
	case int32, int64:
	default:
		isInt = false
	}
	if !isInt {
		return mongoerr.New(mongoerr.BadValue, "Cannot apply $bit to a value of non-integral type.the field %s has the wrong type %s", m.path, TypeName(old))
	}
	_, long := old.(int64)
	for _, op := range m.arg.(bson.D) {
		by, _ := value.AsInt(op.Value)
		if _, isLong := op.Value.(int64); isLong {
			long = true
		}
		switch op.Key {
		case "and":
			n &= by
		case "or":
			n |= by
		case "xor":
			n ^= by
		}
	}
	if long || n < math.MinInt32 || n > math.MaxInt32 {
		return e.set(m.parts, n)
	}
	return e.set(m.parts, int32(n))
}

func checkBitwise(m *modifier) error {
	d, ok := m.arg.(bson.D)
	if !ok || len(d) == 0 {
		return mongoerr.New(mongoerr.BadValue, "The $bit modifier is not compatible with a %s. You must pass in an embedded document: {$bit: {field: {and/or/xor: #}}", TypeName(m.arg))
	}
	for _, op := range d {
		switch op.Key {
		case "and", "or", "xor":
		default:
			return mongoerr.New(mongoerr.BadValue, "The $bit modifier only supports 'and', 'or', and 'xor', not '%s' which is an unknown operator", op.Key)
		}
		switch op.Value.(type) {
		case int32, int64:
		default:
			return mongoerr.New(mongoerr.BadValue, "The $bit modifier field must be an Integer(32/64 bit); a '%s' is not supported here", TypeName(op.Value))
		}
	}
	return nil
}
