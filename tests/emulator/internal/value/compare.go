package value

import (
	"bytes"
	"cmp"
	"math"
	"math/big"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Missing is the value of a path that leads nowhere. It compares below null in expressions, and
// equal to null in match and sort (see SortKey).
type Missing struct{}

// Class returns the server's canonical type order, the first key of every comparison.
func Class(v any) int {
	switch v.(type) {
	case bson.MinKey:
		return -1
	case Missing, bson.Undefined:
		return 0
	case nil, bson.Null:
		return 5
	case int32, int64, float64, bson.Decimal128, int:
		return 10
	case string, bson.Symbol:
		return 15
	case bson.D:
		return 20
	case bson.A:
		return 25
	case bson.Binary:
		return 30
	case bson.ObjectID:
		return 35
	case bool:
		return 40
	case bson.DateTime:
		return 45
	case bson.Timestamp:
		return 47
	case bson.Regex:
		return 50
	case bson.DBPointer:
		return 55
	case bson.JavaScript:
		return 60
	case bson.CodeWithScope:
		return 65
	default:
		return 127
	}
}

// Compare returns the BSON comparison order without collation.
func Compare(a, b any) int {
	ca, cb := Class(a), Class(b)
	if ca != cb {
		return cmp.Compare(ca, cb)
	}
	switch ca {
	case 10:
		return compareNumbers(a, b)
	case 15:
		return strings.Compare(text(a), text(b))
	case 20:
		return compareDocs(a.(bson.D), b.(bson.D))
	case 25:
		return compareArrays(a.(bson.A), b.(bson.A))
	case 30:
		x, y := a.(bson.Binary), b.(bson.Binary)
		return cmp.Or(cmp.Compare(len(x.Data), len(y.Data)), cmp.Compare(x.Subtype, y.Subtype), bytes.Compare(x.Data, y.Data))
	case 35:
		x, y := a.(bson.ObjectID), b.(bson.ObjectID)
		return bytes.Compare(x[:], y[:])
	case 40:
		x, y := a.(bool), b.(bool)
		if x == y {
			return 0
		} else if y {
			return -1
		}
		return 1
	case 45:
		return cmp.Compare(a.(bson.DateTime), b.(bson.DateTime))
	case 47:
		return CompareTimestamps(a.(bson.Timestamp), b.(bson.Timestamp))
	case 50:
		x, y := a.(bson.Regex), b.(bson.Regex)
		return cmp.Or(strings.Compare(x.Pattern, y.Pattern), strings.Compare(x.Options, y.Options))
	case 55:
		x, y := a.(bson.DBPointer), b.(bson.DBPointer)
		return cmp.Or(strings.Compare(x.DB, y.DB), bytes.Compare(x.Pointer[:], y.Pointer[:]))
	case 60:
		return strings.Compare(string(a.(bson.JavaScript)), string(b.(bson.JavaScript)))
	case 65:
		x, y := a.(bson.CodeWithScope), b.(bson.CodeWithScope)
		xs, _ := x.Scope.(bson.D)
		ys, _ := y.Scope.(bson.D)
		return cmp.Or(strings.Compare(string(x.Code), string(y.Code)), compareDocs(xs, ys))
	default: // null, missing, min and max keys have one value each
		return 0
	}
}

// Equal reports whether Compare returns 0; 1, 1.0 and NumberLong(1) are equal.
func Equal(a, b any) bool { return Compare(a, b) == 0 }

// CompareTimestamps orders cluster times.
func CompareTimestamps(a, b bson.Timestamp) int {
	return cmp.Or(cmp.Compare(a.T, b.T), cmp.Compare(a.I, b.I))
}

func text(v any) string {
	if s, ok := v.(bson.Symbol); ok {
		return string(s)
	}
	return v.(string)
}

func compareDocs(a, b bson.D) int {
	for i := range min(len(a), len(b)) {
		c := cmp.Or(cmp.Compare(Class(a[i].Value), Class(b[i].Value)), strings.Compare(a[i].Key, b[i].Key))
		if c == 0 {
			c = Compare(a[i].Value, b[i].Value)
		}
		if c != 0 {
			return c
		}
	}
	return cmp.Compare(len(a), len(b))
}

func compareArrays(a, b bson.A) int {
	for i := range min(len(a), len(b)) {
		if c := Compare(a[i], b[i]); c != 0 {
			return c
		}
	}
	return cmp.Compare(len(a), len(b))
}

// AsInt reads an integral number of any numeric type.
func AsInt(v any) (int64, bool) {
	switch t := v.(type) {
	case int32:
		return int64(t), true
	case int64:
		return t, true
	case float64:
		if t == math.Trunc(t) && math.Abs(t) < 1<<63 {
			return int64(t), true
		}
	case bson.Decimal128:
		if r, ok := rat(t); ok && r.IsInt() && r.Num().IsInt64() {
			return r.Num().Int64(), true
		}
	}
	return 0, false
}

// AsFloat reads any number, losing precision where float64 must.
func AsFloat(v any) (float64, bool) {
	switch t := v.(type) {
	case int32:
		return float64(t), true
	case int64:
		return float64(t), true
	case float64:
		return t, true
	case bson.Decimal128:
		switch {
		case t.IsNaN():
			return math.NaN(), true
		case t.IsInf() != 0:
			return math.Inf(t.IsInf()), true
		}
		r, _ := rat(t)
		f, _ := r.Float64()
		return f, true
	}
	return 0, false
}

func rat(d bson.Decimal128) (*big.Rat, bool) {
	n, exp, err := d.BigInt()
	if err != nil {
		return nil, false
	}
	r := new(big.Rat).SetInt(n)
	p := new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(max(exp, -exp))), nil))
	if exp < 0 {
		return r.Quo(r, p), true
	}
	return r.Mul(r, p), true
}

func compareNumbers(a, b any) int {
	x, xInt := integer(a)
	y, yInt := integer(b)
	if xInt && yInt {
		return cmp.Compare(x, y)
	}
	fx, _ := AsFloat(a)
	fy, _ := AsFloat(b)
	if math.IsNaN(fx) || math.IsNaN(fy) || math.IsInf(fx, 0) || math.IsInf(fy, 0) {
		return cmp.Compare(fx, fy) // NaN sorts below every number
	}
	_, xDec := a.(bson.Decimal128)
	_, yDec := b.(bson.Decimal128)
	if !xDec && !yDec {
		if c := cmp.Compare(fx, fy); c != 0 || (!xInt && !yInt) {
			return c
		}
	}
	return exact(a).Cmp(exact(b))
}

func integer(v any) (int64, bool) {
	switch t := v.(type) {
	case int32:
		return int64(t), true
	case int64:
		return t, true
	case int:
		return int64(t), true
	}
	return 0, false
}

func exact(v any) *big.Rat {
	switch t := v.(type) {
	case float64:
		return new(big.Rat).SetFloat64(t)
	case bson.Decimal128:
		r, _ := rat(t)
		return r
	default:
		n, _ := integer(v)
		return new(big.Rat).SetInt64(n)
	}
}
