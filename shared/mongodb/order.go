package mongodb

import (
	"bytes"
	"cmp"
	"math"
	"math/big"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Compare orders two values as an index without a collation does: by type, then by value. Numbers
// of all types are compared by value, and a missing value (of type 0) equals null. [MongoDB manual,
// Comparison/Sort Order]
func Compare(a, b bson.RawValue) int {
	class := typeOrder(a.Type)
	if c := cmp.Compare(class, typeOrder(b.Type)); c != 0 {
		return c
	}
	switch class {
	case orderNumber:
		return compareNumbers(a, b)
	case orderString:
		return strings.Compare(stringOf(a), stringOf(b))
	case orderDocument, orderArray:
		return compareElements(a, b, class == orderDocument)
	case orderBinary:
		subtype, data := a.Binary()
		otherSubtype, other := b.Binary()
		return cmp.Or(cmp.Compare(len(data), len(other)), cmp.Compare(subtype, otherSubtype), bytes.Compare(data, other))
	case orderDate:
		return cmp.Compare(a.DateTime(), b.DateTime())
	case orderTimestamp:
		at, ai := a.Timestamp()
		bt, bi := b.Timestamp()
		return cmp.Or(cmp.Compare(at, bt), cmp.Compare(ai, bi))
	case orderObjectID, orderBool, orderOther: // the last of no type that an id has in practice
		return bytes.Compare(a.Value, b.Value)
	}
	return 0 // undefined, null, MinKey and MaxKey have one value each
}

// The order of the types.
const (
	orderMinKey = iota
	orderUndefined
	orderNull
	orderNumber
	orderString
	orderDocument
	orderArray
	orderBinary
	orderObjectID
	orderBool
	orderDate
	orderTimestamp
	orderOther
	orderMaxKey
)

func typeOrder(t bson.Type) int {
	switch t {
	case bson.TypeMinKey:
		return orderMinKey
	case bson.TypeUndefined:
		return orderUndefined
	case 0, bson.TypeNull:
		return orderNull
	case bson.TypeInt32, bson.TypeInt64, bson.TypeDouble, bson.TypeDecimal128:
		return orderNumber
	case bson.TypeString, bson.TypeSymbol:
		return orderString
	case bson.TypeEmbeddedDocument:
		return orderDocument
	case bson.TypeArray:
		return orderArray
	case bson.TypeBinary:
		return orderBinary
	case bson.TypeObjectID:
		return orderObjectID
	case bson.TypeBoolean:
		return orderBool
	case bson.TypeDateTime:
		return orderDate
	case bson.TypeTimestamp:
		return orderTimestamp
	case bson.TypeMaxKey:
		return orderMaxKey
	default:
		return orderOther
	}
}

func stringOf(v bson.RawValue) string {
	if s, ok := v.StringValueOK(); ok {
		return s
	}
	s, _ := v.SymbolOK()
	return s
}

// compareElements orders documents by the type, the name and the value of each field in turn, and
// arrays by their values.
func compareElements(a, b bson.RawValue, named bool) int {
	x, _ := bson.Raw(a.Value).Elements()
	y, _ := bson.Raw(b.Value).Elements()
	for i := range min(len(x), len(y)) {
		v, w := x[i].Value(), y[i].Value()
		c := cmp.Compare(typeOrder(v.Type), typeOrder(w.Type))
		if c == 0 && named {
			c = strings.Compare(x[i].Key(), y[i].Key())
		}
		if c == 0 {
			c = Compare(v, w)
		}
		if c != 0 {
			return c
		}
	}
	return cmp.Compare(len(x), len(y))
}

func compareNumbers(a, b bson.RawValue) int {
	whole := func(v bson.RawValue) bool { return v.Type == bson.TypeInt32 || v.Type == bson.TypeInt64 }
	if whole(a) && whole(b) {
		return cmp.Compare(a.AsInt64(), b.AsInt64())
	}
	p, q := exact(a), exact(b)
	if p.finite != nil && q.finite != nil {
		return p.finite.Cmp(q.finite)
	}
	return cmp.Compare(p.class, q.class)
}

// number is the exact value of a number, or its class if it has none: NaN is below all others.
type number struct {
	finite *big.Rat
	class  int
}

const (
	classNaN = iota
	classNegativeInfinity
	classFinite
	classInfinity
)

func exact(v bson.RawValue) number {
	switch v.Type {
	case bson.TypeDouble:
		switch f := v.Double(); {
		case math.IsNaN(f):
			return number{class: classNaN}
		case math.IsInf(f, -1):
			return number{class: classNegativeInfinity}
		case math.IsInf(f, 1):
			return number{class: classInfinity}
		default:
			return number{new(big.Rat).SetFloat64(f), classFinite}
		}
	case bson.TypeDecimal128:
		d := v.Decimal128()
		switch {
		case d.IsNaN():
			return number{class: classNaN}
		case d.IsInf() < 0:
			return number{class: classNegativeInfinity}
		case d.IsInf() > 0:
			return number{class: classInfinity}
		}
		n, exponent, _ := d.BigInt()
		scale := new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(max(exponent, -exponent))), nil))
		r := new(big.Rat).SetInt(n)
		if exponent < 0 {
			return number{r.Quo(r, scale), classFinite}
		}
		return number{r.Mul(r, scale), classFinite}
	default: // an integer
	}
	n, _ := v.AsInt64OK()
	return number{new(big.Rat).SetInt64(n), classFinite}
}
