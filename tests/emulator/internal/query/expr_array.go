package query

import (
	"maps"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/mongoerr"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/value"
)

func init() {
	maps.Copy(operators, map[string]operator{
		"$range":           {2, 3, numbersBetween},
		"$reverseArray":    {1, 1, reverseArray},
		"$indexOfArray":    {2, 4, indexOfArray},
		"$setUnion":        {0, -1, setUnion},
		"$setIntersection": {0, -1, setIntersection},
		"$setDifference":   {2, 2, setDifference},
		"$setEquals":       {2, -1, setEquals},
		"$setIsSubset":     {2, 2, setIsSubset},
		"$allElementsTrue": {1, 1, func(a []any) (any, error) { return elements("$allElementsTrue", a, false) }},
		"$anyElementTrue":  {1, 1, func(a []any) (any, error) { return elements("$anyElementTrue", a, true) }},
	})
	special["$zip"] = compileZip
	special["$sortArray"] = compileSortArray
	for _, name := range []string{"$firstN", "$lastN", "$minN", "$maxN"} {
		special[name] = func(arg any) (*Expr, error) { return compileN(name, arg) }
	}
}

func numbersBetween(a []any) (any, error) {
	var n [3]int64
	n[2] = 1
	for i, v := range a {
		var ok bool
		if n[i], ok = value.AsInt(v); !ok || n[i] != int64(int32(n[i])) {
			return nil, mongoerr.New(34444, "$range requires its arguments to be 32-bit whole numbers, found %v", v)
		}
	}
	if n[2] == 0 {
		return nil, mongoerr.New(34449, "$range requires a non-zero step value")
	}
	if (n[1]-n[0])/n[2] > value.MaxDocument/4 {
		return nil, mongoerr.New(146, "$range would use too much memory")
	}
	out := bson.A{}
	for i := n[0]; (n[2] > 0 && i < n[1]) || (n[2] < 0 && i > n[1]); i += n[2] {
		out = append(out, int32(i))
	}
	return out, nil
}

func reverseArray(a []any) (any, error) {
	if nullish(a[0]) {
		return nil, nil
	}
	list, ok := a[0].(bson.A)
	if !ok {
		return nil, mongoerr.New(34435, "The argument to $reverseArray must be an array, but was of type: %s", TypeName(a[0]))
	}
	out := slices.Clone(list)
	slices.Reverse(out)
	return out, nil
}

func indexOfArray(a []any) (any, error) {
	if nullish(a[0]) {
		return nil, nil
	}
	list, ok := a[0].(bson.A)
	if !ok {
		return nil, mongoerr.New(40090, "$indexOfArray requires an array as a first argument, found: %s", TypeName(a[0]))
	}
	from, to := int64(0), int64(len(list))
	for i, bound := range []*int64{&from, &to} {
		if len(a) <= 2+i {
			continue
		}
		n, ok := value.AsInt(a[2+i])
		if !ok || n < 0 {
			return nil, mongoerr.New(40096, "$indexOfArray requires a nonnegative whole number as a bound, found: %v", a[2+i])
		}
		*bound = n
	}
	for i := from; i < min(to, int64(len(list))); i++ {
		if value.Equal(list[i], a[1]) {
			return int32(i), nil
		}
	}
	return int32(-1), nil
}

// sets reads arrays whose order and repetitions do not matter, each sorted and without repetitions.
// The order in which a server returns a set is not defined; here it is that of the values.
func sets(op string, code int32, a []any) (all []bson.A, null bool, err error) {
	for _, v := range a {
		if nullish(v) {
			return nil, true, nil
		}
		list, ok := v.(bson.A)
		if !ok {
			return nil, false, mongoerr.New(code, "All operands of %s must be arrays. One argument is of type: %s", op, TypeName(v))
		}
		list = slices.Clone(list)
		slices.SortStableFunc(list, value.Compare)
		all = append(all, slices.CompactFunc(list, value.Equal))
	}
	return all, false, nil
}

func has(set bson.A, v any) bool {
	_, found := slices.BinarySearchFunc(set, v, value.Compare)
	return found
}

func setUnion(a []any) (any, error) {
	all, null, err := sets("$setUnion", 17043, a)
	if null || err != nil {
		return nil, err
	}
	out := slices.Concat(all...)
	slices.SortStableFunc(out, value.Compare)
	return append(bson.A{}, slices.CompactFunc(out, value.Equal)...), nil
}

func setIntersection(a []any) (any, error) {
	all, null, err := sets("$setIntersection", 17047, a)
	if null || err != nil {
		return nil, err
	}
	out := bson.A{}
	for i, set := range all {
		if i == 0 {
			out = append(out, set...)
			continue
		}
		out = slices.DeleteFunc(out, func(v any) bool { return !has(set, v) })
	}
	return out, nil
}

func setDifference(a []any) (any, error) {
	all, null, err := sets("$setDifference", 17048, a)
	if null || err != nil {
		return nil, err
	}
	out, seen := bson.A{}, bson.A{}
	for _, v := range a[0].(bson.A) {
		if !has(all[1], v) && !slices.ContainsFunc(seen, func(x any) bool { return value.Equal(x, v) }) {
			out, seen = append(out, v), append(seen, v)
		}
	}
	return out, nil
}

func setEquals(a []any) (any, error) {
	all, null, err := sets("$setEquals", 17044, a)
	if err == nil && null {
		err = mongoerr.New(17044, "All operands of $setEquals must be arrays.")
	}
	if err != nil {
		return nil, err
	}
	for _, set := range all[1:] {
		if !value.Equal(set, all[0]) {
			return false, nil
		}
	}
	return true, nil
}

func setIsSubset(a []any) (any, error) {
	all, null, err := sets("$setIsSubset", 17046, a)
	if err == nil && null {
		err = mongoerr.New(17046, "both operands of $setIsSubset must be arrays.")
	}
	if err != nil {
		return nil, err
	}
	return !slices.ContainsFunc(all[0], func(v any) bool { return !has(all[1], v) }), nil
}

func elements(op string, a []any, wanted bool) (any, error) {
	list, ok := a[0].(bson.A)
	if !ok {
		return nil, mongoerr.New(17040, "%s's argument must be an array, but is %s", op, TypeName(a[0]))
	}
	return slices.ContainsFunc(list, func(v any) bool { return truthy(v) == wanted }) == wanted, nil
}

func compileZip(arg any) (*Expr, error) {
	p, err := named("$zip", arg, []string{"inputs"}, []string{"useLongestLength", "defaults"})
	if err != nil {
		return nil, err
	}
	return p.expr(func(a args) (any, error) {
		inputs, ok := a["inputs"].(bson.A)
		if !ok || len(inputs) == 0 {
			return nil, mongoerr.New(34461, "inputs must be an array of expressions, found %s", TypeName(a["inputs"]))
		}
		defaults, _ := a["defaults"].(bson.A)
		longest := truthy(a["useLongestLength"])
		if len(defaults) > 0 && (!longest || len(defaults) != len(inputs)) {
			return nil, mongoerr.New(34466, "defaults need useLongestLength, and one for each input")
		}
		n := -1
		for _, in := range inputs {
			if nullish(in) {
				return nil, nil
			}
			list, ok := in.(bson.A)
			if !ok {
				return nil, mongoerr.New(34468, "$zip found a non-array expression in input: %s", TypeName(in))
			}
			if n < 0 || (len(list) < n) != longest {
				n = len(list)
			}
		}
		out := bson.A{}
		for row := range n {
			tuple := make(bson.A, len(inputs))
			for i, in := range inputs {
				if list := in.(bson.A); row < len(list) {
					tuple[i] = list[row]
				} else if len(defaults) > 0 {
					tuple[i] = defaults[i]
				}
			}
			out = append(out, tuple)
		}
		return out, nil
	}), nil
}

func compileSortArray(arg any) (*Expr, error) {
	d, _ := arg.(bson.D)
	by, _ := value.Get(d, "sortBy")
	in, has := value.Get(d, "input")
	if !has || by == nil || len(d) != 2 {
		return nil, mongoerr.New(2942500, "$sortArray requires 'input' and 'sortBy'")
	}
	e, err := CompileExpr(in)
	if err != nil {
		return nil, err
	}
	if err := sortArray(bson.A{}, by); err != nil {
		return nil, err
	}
	return &Expr{func(s *scope) (any, error) {
		v, err := e.eval(s)
		if err != nil || nullish(v) {
			return nil, err
		}
		list, ok := v.(bson.A)
		if !ok {
			return nil, mongoerr.New(2942504, "The input argument to $sortArray must be an array, but was of type: %s", TypeName(v))
		}
		out := slices.Clone(list)
		return out, sortArray(out, by)
	}}, nil
}

func compileN(op string, arg any) (*Expr, error) {
	p, err := named(op, arg, []string{"n", "input"}, nil)
	if err != nil {
		return nil, err
	}
	return p.expr(func(a args) (any, error) {
		list, ok := a["input"].(bson.A)
		if !ok {
			return nil, mongoerr.New(5788200, "%s requires its input to be an array, got %s", op, TypeName(a["input"]))
		}
		n, ok := value.AsInt(a["n"])
		if !ok || n < 1 {
			return nil, mongoerr.New(5787908, "'n' must be greater than 0, found %v", a["n"])
		}
		return nOf(op, list, int(n)), nil
	}), nil
}

// nOf takes the first or last n elements, or the n least or greatest, of which null counts for
// none.
func nOf(op string, list bson.A, n int) bson.A {
	list = slices.Clone(list)
	if op == "$minN" || op == "$maxN" {
		list = slices.DeleteFunc(list, nullish)
		slices.SortStableFunc(list, value.Compare)
		if op == "$maxN" {
			slices.Reverse(list)
		}
	}
	if op == "$lastN" {
		return append(bson.A{}, list[max(len(list)-n, 0):]...)
	}
	return append(bson.A{}, list[:min(n, len(list))]...)
}
