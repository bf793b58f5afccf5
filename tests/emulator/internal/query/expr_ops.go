package query

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/mongoerr"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/value"
)

func comparison(holds func(c int) bool) operator {
	return operator{2, 2, func(a []any) (any, error) { return holds(value.Compare(a[0], a[1])), nil }}
}

var operators = map[string]operator{}

func init() {
	maps.Copy(operators, map[string]operator{
		"$eq":            comparison(func(c int) bool { return c == 0 }),
		"$ne":            comparison(func(c int) bool { return c != 0 }),
		"$gt":            comparison(func(c int) bool { return c > 0 }),
		"$gte":           comparison(func(c int) bool { return c >= 0 }),
		"$lt":            comparison(func(c int) bool { return c < 0 }),
		"$lte":           comparison(func(c int) bool { return c <= 0 }),
		"$cmp":           {2, 2, func(a []any) (any, error) { return int32(value.Compare(a[0], a[1])), nil }},
		"$not":           {1, 1, func(a []any) (any, error) { return !truthy(a[0]), nil }},
		"$add":           {0, -1, fold("$add", add)},
		"$multiply":      {0, -1, fold("$multiply", multiply)},
		"$subtract":      {2, 2, fold("$subtract", subtract)},
		"$divide":        {2, 2, divide},
		"$mod":           {2, 2, mod},
		"$abs":           {1, 1, abs},
		"$floor":         {1, 1, rounding(math.Floor)},
		"$ceil":          {1, 1, rounding(math.Ceil)},
		"$concat":        {0, -1, concat},
		"$toString":      {1, 1, func(a []any) (any, error) { return toString(a[0]) }},
		"$toLong":        {1, 1, func(a []any) (any, error) { return toLong(a[0]) }},
		"$toInt":         {1, 1, func(a []any) (any, error) { return toInt(a[0]) }},
		"$toDouble":      {1, 1, func(a []any) (any, error) { return toDouble(a[0]) }},
		"$toLower":       {1, 1, func(a []any) (any, error) { return casing(a[0], lower) }},
		"$toUpper":       {1, 1, func(a []any) (any, error) { return casing(a[0], upper) }},
		"$type":          {1, 1, func(a []any) (any, error) { return TypeName(a[0]), nil }},
		"$isArray":       {1, 1, func(a []any) (any, error) { _, ok := a[0].(bson.A); return ok, nil }},
		"$isNumber":      {1, 1, func(a []any) (any, error) { return value.Class(a[0]) == 10, nil }},
		"$size":          {1, 1, size},
		"$in":            {2, 2, inArray},
		"$arrayElemAt":   {2, 2, arrayElemAt},
		"$first":         {1, 1, func(a []any) (any, error) { return arrayElemAt([]any{a[0], int32(0)}) }},
		"$last":          {1, 1, func(a []any) (any, error) { return arrayElemAt([]any{a[0], int32(-1)}) }},
		"$concatArrays":  {0, -1, concatArrays},
		"$slice":         {2, 3, slice},
		"$mergeObjects":  {0, -1, mergeObjects},
		"$objectToArray": {1, 1, objectToArray},
		"$arrayToObject": {1, 1, arrayToObject},
		"$max":           {0, -1, func(a []any) (any, error) { return extreme(a, 1), nil }},
		"$min":           {0, -1, func(a []any) (any, error) { return extreme(a, -1), nil }},
		"$sum":           {0, -1, func(a []any) (any, error) { return sumOf(a), nil }},
		"$strLenBytes":   {1, 1, strLen},
		"$split":         {2, 2, split},
		"$substrBytes":   {3, 3, substr},
		"$substr":        {3, 3, substr},
	})
}

func concat(a []any) (any, error) {
	var b strings.Builder
	for _, v := range a {
		if nullish(v) {
			return nil, nil
		}
		s, ok := v.(string)
		if !ok {
			return nil, mongoerr.New(16702, "$concat only supports strings, not %s", TypeName(v))
		}
		b.WriteString(s)
	}
	return b.String(), nil
}

// upper and lower change the letters of ASCII only.
func upper(s string) string { return shifted(s, 'a', 'z', 'A'-'a') }

func lower(s string) string { return shifted(s, 'A', 'Z', 'a'-'A') }

func shifted(s string, from, to byte, by int) string {
	out := []byte(s)
	for i, c := range out {
		if c >= from && c <= to {
			out[i] = byte(int(c) + by)
		}
	}
	return string(out)
}

func casing(v any, f func(string) string) (any, error) {
	if nullish(v) {
		return "", nil
	}
	s, err := toString(v)
	if err != nil {
		return nil, err
	}
	return f(s.(string)), nil
}

func toString(v any) (any, error) {
	switch t := v.(type) {
	case nil, value.Missing:
		return nil, nil
	case string:
		return t, nil
	case int32, int64, bool:
		return fmt.Sprint(t), nil
	case float64:
		return strconv.FormatFloat(t, 'g', -1, 64), nil
	case bson.ObjectID:
		return t.Hex(), nil
	case bson.DateTime:
		return t.Time().UTC().Format("2006-01-02T15:04:05.000Z"), nil
	case bson.Decimal128:
		return t.String(), nil
	default:
		return nil, mongoerr.New(241, "Unsupported conversion from %s to string in $convert with no onError value", TypeName(v))
	}
}

func size(a []any) (any, error) {
	list, ok := a[0].(bson.A)
	if !ok {
		return nil, mongoerr.New(17124, "The argument to $size must be an array, but was of type: %s", TypeName(a[0]))
	}
	return int32(len(list)), nil
}

func inArray(a []any) (any, error) {
	list, ok := a[1].(bson.A)
	if !ok {
		return nil, mongoerr.New(40081, "$in requires an array as a second argument, found: %s", TypeName(a[1]))
	}
	for _, v := range list {
		if value.Equal(v, a[0]) {
			return true, nil
		}
	}
	return false, nil
}

func arrayElemAt(a []any) (any, error) {
	if nullish(a[0]) || nullish(a[1]) {
		return nil, nil
	}
	list, ok := a[0].(bson.A)
	i, isInt := value.AsInt(a[1])
	switch {
	case !ok:
		return nil, mongoerr.New(28689, "$arrayElemAt's first argument must be an array, but is %s", TypeName(a[0]))
	case value.Class(a[1]) != 10:
		return nil, mongoerr.New(28690, "$arrayElemAt's second argument must be a numeric value, but is %s", TypeName(a[1]))
	case !isInt:
		return nil, mongoerr.New(28691, "$arrayElemAt's second argument must be representable as a 32-bit integer: %v", a[1])
	}
	if i < 0 {
		i += int64(len(list))
	}
	if i < 0 || i >= int64(len(list)) {
		return value.Missing{}, nil
	}
	return list[i], nil
}

func concatArrays(a []any) (any, error) {
	out := bson.A{}
	for _, v := range a {
		if nullish(v) {
			return nil, nil
		}
		list, ok := v.(bson.A)
		if !ok {
			return nil, mongoerr.New(28664, "$concatArrays only supports arrays, not %s", TypeName(v))
		}
		out = append(out, list...)
	}
	return out, nil
}

func slice(a []any) (any, error) {
	if slices.ContainsFunc(a, nullish) {
		return nil, nil
	}
	list, ok := a[0].(bson.A)
	if !ok {
		return nil, mongoerr.New(28724, "First argument to $slice must be an array, but is of type: %s", TypeName(a[0]))
	}
	for i, v := range a[1:] {
		if value.Class(v) != 10 {
			return nil, mongoerr.New(28725+2*int32(i), "Argument %d to $slice must be numeric, but is of type: %s", i+2, TypeName(v))
		}
		if _, whole := value.AsInt(v); !whole {
			return nil, mongoerr.New(28726+2*int32(i), "Argument %d to $slice can't be represented as a 32-bit integer: %v", i+2, v)
		}
	}
	from, _ := value.AsInt(a[1])
	n := int64(len(list))
	if len(a) == 2 {
		if from >= 0 {
			return list[:min(from, n)], nil
		}
		return list[max(n+from, 0):], nil
	}
	count, _ := value.AsInt(a[2])
	if count <= 0 {
		return nil, mongoerr.New(28729, "the third argument to $slice must be a positive integer")
	}
	if from < 0 {
		from = max(n+from, 0)
	}
	from = min(from, n)
	return list[from:min(from+count, n)], nil
}

func mergeObjects(a []any) (any, error) {
	if len(a) == 1 {
		if list, ok := a[0].(bson.A); ok {
			a = list
		}
	}
	out := bson.D{}
	for _, v := range a {
		if nullish(v) {
			continue
		}
		d, ok := v.(bson.D)
		if !ok {
			return nil, mongoerr.New(40400, "$mergeObjects requires object inputs, but input is of type %s", TypeName(v))
		}
		for _, e := range d {
			out = value.Set(out, e.Key, e.Value)
		}
	}
	return out, nil
}

func objectToArray(a []any) (any, error) {
	if nullish(a[0]) {
		return nil, nil
	}
	d, ok := a[0].(bson.D)
	if !ok {
		return nil, mongoerr.New(40390, "$objectToArray requires a document input, found: %s", TypeName(a[0]))
	}
	out := make(bson.A, 0, len(d))
	for _, e := range d {
		out = append(out, bson.D{{Key: "k", Value: e.Key}, {Key: "v", Value: e.Value}})
	}
	return out, nil
}

func arrayToObject(a []any) (any, error) {
	if nullish(a[0]) {
		return nil, nil
	}
	list, ok := a[0].(bson.A)
	if !ok {
		return nil, mongoerr.New(40386, "$arrayToObject requires an array input, found: %s", TypeName(a[0]))
	}
	out := bson.D{}
	for _, item := range list {
		var k, v any
		switch t := item.(type) {
		case bson.D:
			k, _ = value.Get(t, "k")
			v, _ = value.Get(t, "v")
			if len(t) != 2 {
				return nil, mongoerr.New(40392, "$arrayToObject requires an object keys of 'k' and 'v'")
			}
		case bson.A:
			if len(t) != 2 {
				return nil, mongoerr.New(40397, "$arrayToObject requires an array of size 2 arrays")
			}
			k, v = t[0], t[1]
		}
		key, ok := k.(string)
		if !ok {
			return nil, mongoerr.New(40394, "$arrayToObject requires keys of type string, found %s", TypeName(k))
		}
		out = value.Set(out, key, v)
	}
	return out, nil
}

func extreme(a []any, sign int) any {
	if len(a) == 1 {
		if list, ok := a[0].(bson.A); ok {
			a = list
		}
	}
	var best any
	for _, v := range a {
		if !nullish(v) && (best == nil || value.Compare(v, best)*sign > 0) {
			best = v
		}
	}
	return best
}

func sumOf(a []any) any {
	if len(a) == 1 {
		if list, ok := a[0].(bson.A); ok {
			a = list
		}
	}
	var sum any = int32(0)
	for _, v := range a {
		if value.Class(v) == 10 {
			sum, _ = total(sum, v)
		}
	}
	return sum
}

func strLen(a []any) (any, error) {
	s, ok := a[0].(string)
	if !ok {
		return nil, mongoerr.New(34473, "$strLenBytes requires a string argument, found: %s", TypeName(a[0]))
	}
	return int32(len(s)), nil
}

func split(a []any) (any, error) {
	if nullish(a[0]) || nullish(a[1]) {
		return nil, nil
	}
	s, ok1 := a[0].(string)
	sep, ok2 := a[1].(string)
	if !ok1 || !ok2 || sep == "" {
		return nil, mongoerr.New(40085, "$split requires two strings, the separator not empty")
	}
	out := bson.A{}
	for part := range strings.SplitSeq(s, sep) {
		out = append(out, part)
	}
	return out, nil
}

func substr(a []any) (any, error) {
	v, err := casing(a[0], func(s string) string { return s })
	from, ok1 := value.AsInt(a[1])
	count, ok2 := value.AsInt(a[2])
	if err != nil || !ok1 || !ok2 || from < 0 {
		return nil, mongoerr.New(50752, "$substrBytes needs a string, a start and a length")
	}
	s := v.(string)
	from = min(from, int64(len(s)))
	to := int64(len(s))
	if count >= 0 {
		to = min(from+count, to)
	}
	if from < int64(len(s)) && !utf8.RuneStart(s[from]) {
		return nil, mongoerr.New(28656, "$substrBytes:  Invalid range, starting index is a UTF-8 continuation byte.")
	}
	if to < int64(len(s)) && !utf8.RuneStart(s[to]) {
		return nil, mongoerr.New(28657, "$substrBytes:  Invalid range, ending index is in the middle of a UTF-8 character.")
	}
	return s[from:to], nil
}
