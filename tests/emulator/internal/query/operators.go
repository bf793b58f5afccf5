package query

import (
	"math"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/mongoerr"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/value"
)

func compileOperator(op string, arg any, all bson.D, env *Env) ([]leaf, error) {
	switch op {
	case "$eq":
		l, err := equals(arg, env)
		return []leaf{l}, err
	case "$ne":
		if _, ok := arg.(bson.Regex); ok {
			return nil, mongoerr.New(mongoerr.BadValue, "Can't have regex as arg to $ne.")
		}
		l, err := equals(arg, env)
		l.negate = true
		return []leaf{l}, err
	case "$gt", "$gte", "$lt", "$lte":
		if _, ok := arg.(bson.Regex); ok {
			return nil, mongoerr.New(mongoerr.BadValue, "Can't have RegEx as arg to predicate over field '%s'.", op)
		}
		return []leaf{compare(op, arg, env)}, nil
	case "$in", "$nin":
		l, err := in(op, arg, env)
		return []leaf{l}, err
	case "$exists":
		return []leaf{{negate: !truthy(arg), test: func(v any) (bool, error) {
			_, missing := v.(value.Missing)
			return !missing, nil
		}}}, nil
	case "$type":
		return typeLeaf(arg)
	case "$size":
		n, ok := value.AsInt(arg)
		if !ok || n < 0 {
			return nil, mongoerr.New(mongoerr.BadValue, "Failed to parse $size. Expected a non-negative integer")
		}
		return []leaf{{test: func(v any) (bool, error) {
			a, ok := v.(bson.A)
			return ok && int64(len(a)) == n, nil
		}}}, nil
	case "$all":
		return allLeaves(arg, env)
	case "$elemMatch":
		l, err := elemMatch(arg, env)
		return []leaf{l}, err
	case "$not":
		return notLeaf(arg, env)
	case "$regex":
		return regexOperator(arg, all)
	case "$options":
		if _, ok := value.Get(all, "$regex"); !ok {
			return nil, mongoerr.New(mongoerr.BadValue, "$options needs a $regex")
		}
		return nil, nil
	case "$mod":
		return modLeaf(arg)
	case "$bitsAllSet", "$bitsAnySet", "$bitsAllClear", "$bitsAnyClear":
		l, err := bitLeaf(op, arg)
		return []leaf{l}, err
	case "$comment":
		return nil, nil
	}
	if slices.Contains(foreignFilters, op) {
		return nil, mongoerr.Unsupported("the query operator %s", op)
	}
	return nil, mongoerr.New(mongoerr.BadValue, "unknown operator: %s", op)
}

func in(op string, arg any, env *Env) (leaf, error) {
	list, ok := arg.(bson.A)
	if !ok {
		return leaf{}, mongoerr.New(mongoerr.BadValue, "%s needs an array", op)
	}
	var tests []leaf
	for _, want := range list {
		if r, ok := want.(bson.Regex); ok {
			ls, err := regexLeaf(r)
			if err != nil {
				return leaf{}, err
			}
			tests = append(tests, ls...)
			continue
		}
		if isOperators(want) {
			return leaf{}, mongoerr.New(mongoerr.BadValue, "cannot nest $ under %s", op)
		}
		l, err := equals(want, env)
		if err != nil {
			return leaf{}, err
		}
		tests = append(tests, l)
	}
	return leaf{elements: true, negate: op == "$nin", test: func(v any) (bool, error) {
		for _, t := range tests {
			if ok, err := t.test(v); ok || err != nil {
				return ok, err
			}
		}
		return false, nil
	}}, nil
}

func allLeaves(arg any, env *Env) ([]leaf, error) {
	list, ok := arg.(bson.A)
	if !ok {
		return nil, mongoerr.New(mongoerr.BadValue, "$all needs an array")
	}
	if len(list) == 0 {
		return []leaf{{test: func(any) (bool, error) { return false, nil }}}, nil
	}
	var out []leaf
	for _, want := range list {
		if d, ok := want.(bson.D); ok && len(d) == 1 && d[0].Key == "$elemMatch" {
			l, err := elemMatch(d[0].Value, env)
			if err != nil {
				return nil, err
			}
			out = append(out, l)
			continue
		}
		ls, err := compileField(want, env)
		if err != nil {
			return nil, err
		}
		out = append(out, ls...)
	}
	return out, nil
}

func elemMatch(arg any, env *Env) (leaf, error) {
	d, ok := arg.(bson.D)
	if !ok {
		return leaf{}, mongoerr.New(mongoerr.BadValue, "$elemMatch needs an Object")
	}
	var test predicate
	if isOperators(d) && d[0].Key != "$and" && d[0].Key != "$or" && d[0].Key != "$nor" && d[0].Key != "$expr" {
		ls, err := compileField(d, env)
		if err != nil {
			return leaf{}, err
		}
		test = func(v any) (bool, error) { return all(ls, v, false) }
	} else {
		p, err := compileAll(d, env)
		if err != nil {
			return leaf{}, err
		}
		test = func(v any) (bool, error) {
			switch v.(type) {
			case bson.D, bson.A:
				return p(v)
			}
			return false, nil
		}
	}
	return leaf{test: func(v any) (bool, error) {
		a, _ := v.(bson.A)
		for _, e := range a {
			if ok, err := test(e); ok || err != nil {
				return ok, err
			}
		}
		return false, nil
	}}, nil
}

func notLeaf(arg any, env *Env) ([]leaf, error) {
	var ls []leaf
	var err error
	switch t := arg.(type) {
	case bson.Regex:
		ls, err = regexLeaf(t)
	case bson.D:
		if len(t) == 0 || !isOperators(t) {
			return nil, mongoerr.New(mongoerr.BadValue, "$not needs a regex or a document of operators")
		}
		ls, err = compileField(t, env)
	default:
		return nil, mongoerr.New(mongoerr.BadValue, "$not needs a regex or a document")
	}
	if err != nil {
		return nil, err
	}
	if len(ls) == 1 {
		ls[0].negate = !ls[0].negate
		return ls, nil
	}
	return []leaf{{none: ls}}, nil
}

func regexOperator(arg any, all bson.D) ([]leaf, error) {
	r, ok := arg.(bson.Regex)
	if s, isString := arg.(string); isString {
		r, ok = bson.Regex{Pattern: s}, true
	}
	if !ok {
		return nil, mongoerr.New(mongoerr.BadValue, "$regex has to be a string")
	}
	if o, has := value.Get(all, "$options"); has {
		s, ok := o.(string)
		if !ok {
			return nil, mongoerr.New(mongoerr.BadValue, "$options has to be a string")
		}
		r.Options = s
	}
	return regexLeaf(r)
}

func modLeaf(arg any) ([]leaf, error) {
	list, _ := arg.(bson.A)
	if len(list) != 2 {
		return nil, mongoerr.New(mongoerr.BadValue, "malformed mod, needs to be an array of two numbers")
	}
	div, ok1 := value.AsFloat(list[0])
	rem, ok2 := value.AsFloat(list[1])
	if !ok1 || !ok2 || math.Trunc(div) == 0 {
		return nil, mongoerr.New(mongoerr.BadValue, "malformed mod, needs two numbers and a divisor that is not 0")
	}
	return []leaf{{elements: true, test: func(v any) (bool, error) {
		f, ok := value.AsFloat(v)
		return ok && !math.IsNaN(f) && math.Mod(math.Trunc(f), math.Trunc(div)) == math.Trunc(rem), nil
	}}}, nil
}

var typeNumbers = map[string]int{
	"double": 1, "string": 2, "object": 3, "array": 4, "binData": 5, "undefined": 6, "objectId": 7, "bool": 8, "date": 9, "null": 10, "regex": 11,
	"dbPointer": 12, "javascript": 13, "symbol": 14, "javascriptWithScope": 15, "int": 16, "timestamp": 17, "long": 18, "decimal": 19, "minKey": -1, "maxKey": 127, "missing": 0,
}

// TypeName returns the name $type gives a value's type.
func TypeName(v any) string {
	if _, ok := v.(value.Missing); ok {
		return "missing"
	}
	_, t := value.AppendValue(nil, v)
	for name, n := range typeNumbers {
		if byte(n) == byte(t) {
			return name
		}
	}
	return "unknown"
}

func typeLeaf(arg any) ([]leaf, error) {
	list, ok := arg.(bson.A)
	if !ok {
		list = bson.A{arg}
	}
	var want []string
	for _, item := range list {
		if s, ok := item.(string); ok {
			if _, known := typeNumbers[s]; !known && s != "number" {
				return nil, mongoerr.New(mongoerr.BadValue, "Unknown type name alias: %s", s)
			}
			if s == "number" {
				want = append(want, "int", "long", "double", "decimal")
			} else {
				want = append(want, s)
			}
			continue
		}
		n, ok := value.AsInt(item)
		name := ""
		for s, code := range typeNumbers {
			if ok && int64(code) == n && s != "missing" {
				name = s
			}
		}
		if name == "" {
			return nil, mongoerr.New(mongoerr.BadValue, "Invalid numerical type code: %v", item)
		}
		want = append(want, name)
	}
	return []leaf{{elements: true, test: func(v any) (bool, error) {
		got := TypeName(v)
		if slices.Contains(want, got) {
			return true, nil
		}
		return false, nil
	}}}, nil
}

// all reports whether one element fulfils every condition. Inside an array of its own, an
// $elemMatch is met as well.
func all(leaves []leaf, v any, alone bool) (bool, error) {
	for _, l := range leaves {
		if l.none != nil {
			if hit, err := all(l.none, v, alone); hit || err != nil {
				return false, err
			}
			continue
		}
		hit, err := l.test(v)
		if !hit && err == nil && alone {
			hit, err = l.test(bson.A{v})
		}
		if hit == l.negate || err != nil {
			return false, err
		}
	}
	return true, nil
}
