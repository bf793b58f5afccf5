package envelope

import (
	"math"
	"math/big"
	"strconv"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// maxTwos is how many decimals a Decimal128 with a finite binary fraction has at most: 34 digits
// are divisible by 5 no more often.
const maxTwos = 48

// Normal returns the value that stands for all those that MongoDB takes for the same _id: a number
// has the first of the types int32, int64, double and Decimal128 that holds it exactly, a symbol is
// a string, and so are the fields of documents and the elements of arrays. A value that cannot be
// read is returned as it is.
func Normal(v bson.RawValue) bson.RawValue {
	switch v.Type {
	case bson.TypeInt64:
		if n, ok := v.Int64OK(); ok {
			return normalInteger(n)
		}
	case bson.TypeDouble:
		if f, ok := v.DoubleOK(); ok {
			return normalDouble(f)
		}
	case bson.TypeDecimal128:
		if d, ok := v.Decimal128OK(); ok {
			return normalDecimal(d)
		}
	case bson.TypeSymbol:
		if s, ok := v.SymbolOK(); ok {
			return normalOf(s, v)
		}
	case bson.TypeEmbeddedDocument:
		if document, ok := v.DocumentOK(); ok {
			if elements, err := document.Elements(); err == nil {
				normal := make(bson.D, len(elements))
				for i, e := range elements {
					normal[i] = bson.E{Key: e.Key(), Value: Normal(e.Value())}
				}
				return normalOf(normal, v)
			}
		}
	case bson.TypeArray:
		if array, ok := v.ArrayOK(); ok {
			if values, err := array.Values(); err == nil {
				normal := make(bson.A, len(values))
				for i, element := range values {
					normal[i] = Normal(element)
				}
				return normalOf(normal, v)
			}
		}
	default: // one type, one value
	}
	return v
}

// normalOf returns a value as BSON, or another one if it cannot be written.
func normalOf(value any, otherwise bson.RawValue) bson.RawValue {
	kind, data, err := bson.MarshalValue(value)
	if err != nil {
		return otherwise
	}
	return bson.RawValue{Type: kind, Value: data}
}

func normalInteger(n int64) bson.RawValue {
	if n == int64(int32(n)) {
		return normalOf(int32(n), bson.RawValue{})
	}
	return normalOf(n, bson.RawValue{})
}

func normalDouble(f float64) bson.RawValue {
	switch {
	case math.IsNaN(f):
		f = math.NaN() // there are many
	case f == math.Trunc(f) && f >= -1<<63 && f < 1<<63:
		return normalInteger(int64(f))
	}
	return normalOf(f, bson.RawValue{})
}

func normalDecimal(d bson.Decimal128) bson.RawValue {
	switch infinite := d.IsInf(); {
	case d.IsNaN():
		return normalDouble(math.NaN())
	case infinite != 0:
		return normalDouble(math.Inf(infinite))
	}
	as := normalOf(d, bson.RawValue{})
	digits, exponent, err := d.BigInt()
	if err != nil {
		return as
	}
	if digits.Sign() == 0 {
		return normalInteger(0)
	}
	ten := big.NewInt(10)
	for {
		rest, zero := new(big.Int).QuoRem(digits, ten, new(big.Int))
		if zero.Sign() != 0 {
			break
		}
		digits, exponent = rest, exponent+1
	}
	if exponent >= -maxTwos && exponent <= 308 {
		power := new(big.Int).Exp(ten, big.NewInt(int64(max(exponent, -exponent))), nil)
		value := new(big.Rat).SetInt(digits)
		if exponent < 0 {
			value.Quo(value, new(big.Rat).SetInt(power))
		} else {
			value.Mul(value, new(big.Rat).SetInt(power))
		}
		if value.IsInt() && value.Num().IsInt64() {
			return normalInteger(value.Num().Int64())
		}
		if f, exact := value.Float64(); exact {
			return normalDouble(f)
		}
	}
	if d, ok := bson.ParseDecimal128FromBigInt(digits, exponent); ok {
		return normalOf(d, as)
	}
	return as
}

// Values returns the BSON values whose text is this aggregate id: at the path of the id or, with
// asID, as the _id of a document in which that path is missing. Of equal numbers, one type is
// enough.
func Values(text string, asID bool) bson.A {
	all := bson.A{text}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		all = append(all, n)
	}
	if id, err := bson.ObjectIDFromHex(text); err == nil {
		all = append(all, id)
	}
	if t, err := time.Parse(time.RFC3339Nano, text); err == nil {
		all = append(all, bson.NewDateTimeFromTime(t))
	}
	// All other texts are Extended JSON, except UUIDs, and large doubles, which the driver writes
	// as 1E+300.0 but cannot read in this form.
	for _, json := range []string{text, `{"$uuid": "` + text + `"}`, strings.Replace(text, `.0"}`, `"}`, 1)} {
		var d struct{ V bson.RawValue }
		if err := bson.UnmarshalExtJSON([]byte(`{"v": `+json+`}`), true, &d); err == nil {
			if back, ok := Text(d.V); back == text || (asID && !ok && d.V.String() == text) {
				all = append(all, d.V)
			}
		}
	}
	return all
}
