package query

import (
	"maps"
	"math"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/mongoerr"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/value"
)

// conversions are the target types of $convert, by name.
var conversions = map[string]func(v any) (any, error){}

func init() {
	maps.Copy(conversions, map[string]func(v any) (any, error){
		"double": toDouble, "string": toString, "int": toInt, "long": toLong, "bool": toBool, "date": toDate, "objectId": toObjectID, "decimal": toDecimal,
	})
	for name, as := range map[string]string{"$toBool": "bool", "$toDate": "date", "$toObjectId": "objectId", "$toDecimal": "decimal"} {
		operators[name] = operator{1, 1, func(a []any) (any, error) { return conversions[as](a[0]) }}
	}
	maps.Copy(operators, map[string]operator{
		"$binarySize":  {1, 1, binarySize},
		"$bsonSize":    {1, 1, bsonSize},
		"$tsSecond":    {1, 1, timestampPart("$tsSecond", func(t bson.Timestamp) uint32 { return t.T })},
		"$tsIncrement": {1, 1, timestampPart("$tsIncrement", func(t bson.Timestamp) uint32 { return t.I })},
	})
	special["$convert"] = compileConvert
}

func compileConvert(arg any) (*Expr, error) {
	if _, has := value.Get(asDocument(arg), "format"); has {
		return nil, mongoerr.Unsupported("$convert with a format")
	}
	p, err := named("$convert", arg, []string{"input", "to"}, []string{"onError", "onNull"})
	if err != nil {
		return nil, err
	}
	return p.expr(func(a args) (any, error) {
		if a.null("input") {
			return a["onNull"], nil
		}
		if a.null("to") {
			return nil, nil
		}
		name, isName := a["to"].(string)
		if n, isNumber := value.AsInt(a["to"]); isNumber {
			for s, code := range typeNumbers {
				if int64(code) == n {
					name, isName = s, true
				}
			}
		}
		if !isName {
			return nil, mongoerr.Unsupported("$convert to %v", a["to"])
		}
		if _, known := typeNumbers[name]; !known {
			return nil, mongoerr.New(mongoerr.BadValue, "Unknown type name: %s", name)
		}
		if TypeName(a["input"]) == name {
			return a["input"], nil
		}
		convert := conversions[name]
		if convert == nil {
			return nil, mongoerr.Unsupported("$convert to %s", name)
		}
		v, err := convert(a["input"])
		if err != nil && a.given("onError") {
			return a["onError"], nil
		}
		return v, err
	}), nil
}

func toBool(v any) (any, error) {
	if nullish(v) {
		return nil, nil
	}
	return truthy(v), nil
}

func toDate(v any) (any, error) {
	switch t := v.(type) {
	case nil, value.Missing:
		return nil, nil
	case bson.DateTime:
		return t, nil
	case bson.Timestamp, bson.ObjectID:
		at, err := dateOf("$toDate", t)
		return bson.NewDateTimeFromTime(at), err
	case string:
		at, err := parseDate(t, time.UTC, false)
		if err != nil {
			return nil, err
		}
		return bson.NewDateTimeFromTime(at), nil
	case int64, float64, bson.Decimal128:
		f, _ := value.AsFloat(t)
		if n, ok := t.(int64); ok {
			return bson.DateTime(n), nil
		}
		if math.IsNaN(f) || math.Abs(f) >= 1<<63 {
			return nil, conversionFailed("Attempt to convert value of type %s to date would overflow", TypeName(v))
		}
		return bson.DateTime(math.Trunc(f)), nil
	}
	return nil, conversionFailed("Unsupported conversion from %s to date in $convert with no onError value", TypeName(v))
}

func toObjectID(v any) (any, error) {
	switch t := v.(type) {
	case nil, value.Missing:
		return nil, nil
	case bson.ObjectID:
		return t, nil
	case string:
		id, err := bson.ObjectIDFromHex(t)
		if err != nil {
			return nil, conversionFailed("Failed to parse objectId '%s' in $convert with no onError value", t)
		}
		return id, nil
	}
	return nil, conversionFailed("Unsupported conversion from %s to objectId in $convert with no onError value", TypeName(v))
}

func toDecimal(v any) (any, error) {
	switch t := v.(type) {
	case nil, value.Missing:
		return nil, nil
	case bson.Decimal128:
		return t, nil
	case string:
		d, err := bson.ParseDecimal128(t)
		if err != nil {
			return nil, conversionFailed("Failed to parse number '%s' in $convert with no onError value", t)
		}
		return d, nil
	case bool:
		n := int32(0)
		if t {
			n = 1
		}
		return scale(n, decimalDigits).decimal(), nil
	case bson.DateTime:
		return scale(int64(t), decimalDigits).decimal(), nil
	case float64:
		if math.IsNaN(t) || math.IsInf(t, 0) {
			return nil, mongoerr.Unsupported("a Decimal128 that is infinite or not a number")
		}
		return scale(t, 15).decimal(), nil
	case int32, int64:
		return scale(t, decimalDigits).decimal(), nil
	}
	return nil, conversionFailed("Unsupported conversion from %s to decimal in $convert with no onError value", TypeName(v))
}

func binarySize(a []any) (any, error) {
	switch t := a[0].(type) {
	case nil, value.Missing:
		return nil, nil
	case string:
		return int32(len(t)), nil
	case bson.Binary:
		return int32(len(t.Data)), nil
	}
	return nil, mongoerr.New(51276, "$binarySize requires a string or BinData argument, found: %s", TypeName(a[0]))
}

func bsonSize(a []any) (any, error) {
	if nullish(a[0]) {
		return nil, nil
	}
	d, ok := a[0].(bson.D)
	if !ok {
		return nil, mongoerr.New(31393, "$bsonSize requires a document input, found: %s", TypeName(a[0]))
	}
	return int32(len(value.Encode(d))), nil
}

func timestampPart(op string, part func(bson.Timestamp) uint32) func([]any) (any, error) {
	return func(a []any) (any, error) {
		if nullish(a[0]) {
			return nil, nil
		}
		t, ok := a[0].(bson.Timestamp)
		if !ok {
			return nil, mongoerr.New(5687301, "Argument to %s must be a timestamp, but is %s", op, TypeName(a[0]))
		}
		return int64(part(t)), nil
	}
}
