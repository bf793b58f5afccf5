package query

import (
	"math"
	"sort"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/mongoerr"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/value"
)

var modifiers map[string]func(e *editor, m modifier) error

func init() {
	modifiers = map[string]func(e *editor, m modifier) error{
		"$set":   func(e *editor, m modifier) error { return e.set(m.parts, value.Clone(m.arg)) },
		"$unset": func(e *editor, m modifier) error { e.unset(m.parts); return nil },
		"$setOnInsert": func(e *editor, m modifier) error {
			if !e.inserting {
				return nil
			}
			return e.set(m.parts, value.Clone(m.arg))
		},
		"$inc":         func(e *editor, m modifier) error { return number(e, m, add) },
		"$mul":         func(e *editor, m modifier) error { return number(e, m, multiply) },
		"$min":         func(e *editor, m modifier) error { return bound(e, m, -1) },
		"$max":         func(e *editor, m modifier) error { return bound(e, m, 1) },
		"$rename":      rename,
		"$currentDate": currentDate,
		"$push":        push,
		"$addToSet":    addToSet,
		"$pull":        pull,
		"$pullAll":     pullAll,
		"$pop":         pop,
		"$bit":         bitwise,
	}
}

func number(e *editor, m modifier, calculate func(a, b any) (any, error)) error {
	f := func(a, b any) (any, error) {
		if isDecimal(a) || isDecimal(b) {
			return decimals(m.op, a, b, digitsOfDouble)
		}
		return calculate(a, b)
	}
	old, ok := e.get(m.parts)
	if !ok {
		if m.op == "$inc" {
			return e.set(m.parts, m.arg)
		}
		zero, err := f(int32(0), m.arg)
		if err != nil {
			return err
		}
		return e.set(m.parts, zero)
	}
	if value.Class(old) != 10 {
		id, _ := value.Get(e.doc, "_id")
		return mongoerr.New(mongoerr.TypeMismatch, "Cannot apply %s to a value of non-numeric type. {_id: %v} has the field '%s' of non-numeric type %s", m.op, id, m.parts[len(m.parts)-1], TypeName(old))
	}
	now, err := f(old, m.arg)
	if err != nil {
		return err
	}
	_, wasFloat := old.(float64)
	_, argFloat := m.arg.(float64)
	if _, isFloat := now.(float64); isFloat && !wasFloat && !argFloat {
		return mongoerr.New(mongoerr.BadValue, "Failed to apply %s operations to current value (%v) for document", m.op, old)
	}
	if f, _ := value.AsFloat(now); math.IsNaN(f) { // is not equal to itself
		e.rewrite(m.parts, now)
		return nil
	}
	// A result of the same type and value is no change, whatever its digits: 1.0 plus 0.00 stays
	// 1.0.
	if TypeName(now) == TypeName(old) && value.Equal(now, old) {
		return nil
	}
	return e.set(m.parts, now)
}

func bound(e *editor, m modifier, sign int) error {
	old, ok := e.get(m.parts)
	if ok && value.Compare(m.arg, old)*sign <= 0 {
		return nil
	}
	return e.set(m.parts, value.Clone(m.arg))
}

func rename(e *editor, m modifier) error {
	v, ok := e.get(m.parts)
	if !ok {
		return nil
	}
	to := value.Split(m.arg.(string))
	for end, path := range map[string][]string{"source": m.parts, "destination": to} {
		if e.inArray(path) {
			return mongoerr.New(mongoerr.BadValue, "The %s field cannot be an array element, '%s' has an array field", end, strings.Join(path, "."))
		}
	}
	if m.path == "_id" || to[0] == "_id" {
		return mongoerr.New(mongoerr.ImmutableField, "Performing an update on the path '_id' would modify the immutable field '_id'")
	}
	e.unset(m.parts)
	return e.set(to, v)
}

// inArray reports whether a path leads through an array.
func (e *editor) inArray(path []string) bool {
	for n := 1; n < len(path); n++ {
		v, _ := e.get(path[:n])
		if _, is := v.(bson.A); is {
			return true
		}
	}
	return false
}

func currentDate(e *editor, m modifier) error {
	if kind, _ := dateKind(m.arg); kind == "timestamp" {
		return e.set(m.parts, e.env.ClusterTime)
	}
	return e.set(m.parts, bson.NewDateTimeFromTime(e.env.Now))
}

// dateKind reads the argument of $currentDate: "date" or "timestamp".
func dateKind(arg any) (string, error) {
	switch t := arg.(type) {
	case bool:
		return "date", nil
	case bson.D:
		v, _ := value.Get(t, "$type")
		kind, _ := v.(string)
		if len(t) != 1 || (kind != "date" && kind != "timestamp") {
			return "", mongoerr.New(mongoerr.BadValue, "The '$type' string field is required to be 'date' or 'timestamp': {$currentDate: {field : {$type: 'date'}}}")
		}
		return kind, nil
	}
	return "", mongoerr.New(mongoerr.BadValue, "%s is not valid type for $currentDate. Please use a boolean ('true') or a $type expression ({$type: 'timestamp/date'}).", TypeName(arg))
}

func array(e *editor, m modifier) (list bson.A, existed bool, err error) {
	old, ok := e.get(m.parts)
	if !ok {
		return nil, false, nil
	}
	list, isArray := old.(bson.A)
	if !isArray {
		return nil, true, mongoerr.New(mongoerr.BadValue, "The field '%s' must be an array but is of type %s in document", m.path, TypeName(old))
	}
	return list, true, nil
}

// checkPush checks the clauses of $push.
func checkPush(arg any) error {
	d, ok := arg.(bson.D)
	each, has := value.Get(d, "$each")
	if !ok || !has {
		return nil
	}
	if _, isArray := each.(bson.A); !isArray {
		return mongoerr.New(mongoerr.BadValue, "The argument to $each in $push must be an array but it was of type: %s", TypeName(each))
	}
	for _, clause := range d {
		_, isInt := value.AsInt(clause.Value)
		switch clause.Key {
		case "$each":
		case "$sort":
			if spec, isDoc := clause.Value.(bson.D); isDoc && len(spec) == 0 {
				return mongoerr.New(mongoerr.BadValue, "The sort parameters cannot be empty: $sort: {}")
			}
			if err := sortArray(bson.A{}, clause.Value); err != nil {
				return err
			}
		case "$position", "$slice":
			if !isInt {
				return mongoerr.New(mongoerr.BadValue, "The value for %s must be an integer value", clause.Key)
			}
		default:
			return mongoerr.New(mongoerr.BadValue, "Unrecognized clause in $push: %s", clause.Key)
		}
	}
	return nil
}

func push(e *editor, m modifier) error {
	list, existed, err := array(e, m)
	if err != nil {
		return err
	}
	items, mods := bson.A{m.arg}, bson.D(nil)
	if d, ok := m.arg.(bson.D); ok {
		if each, has := value.Get(d, "$each"); has {
			items = each.(bson.A)
			mods = value.Remove(append(bson.D{}, d...), "$each")
		}
	}
	out := append(bson.A{}, list...)
	at := len(out)
	if n, ok := value.AsInt(field(mods, "$position")); ok {
		if n < 0 {
			n = max(int64(len(out))+n, 0)
		}
		at = int(min(n, int64(len(out))))
	}
	tail := append(bson.A{}, out[at:]...)
	out = append(append(out[:at], value.Clone(items).(bson.A)...), tail...)
	if by := field(mods, "$sort"); by != nil {
		if err := sortArray(out, by); err != nil {
			return err
		}
	}
	if n, ok := value.AsInt(field(mods, "$slice")); ok { // always after the sort
		if n < 0 {
			out = out[max(int64(len(out))+n, 0):]
		} else {
			out = out[:min(n, int64(len(out)))]
		}
	}
	if existed && len(list) > 0 && len(mods) == 0 {
		e.replaceField(m.parts, out)
		e.appended(m.path, len(list), len(out))
		return nil
	}
	return e.set(m.parts, out)
}

// replaceField writes without noting the path; the caller notes what changed.
func (e *editor) replaceField(parts []string, v any) {
	ignored := "-"
	out, _ := setIn(e.doc, parts, 0, v, &ignored)
	e.doc = out.(bson.D)
}

func sortArray(list bson.A, spec any) error {
	if d, ok := spec.(bson.D); ok {
		s, err := CompileSort(d)
		if err != nil {
			return err
		}
		sort.SliceStable(list, func(i, j int) bool {
			a, _ := list[i].(bson.D)
			b, _ := list[j].(bson.D)
			return s.Compare(a, b) < 0
		})
		return nil
	}
	n, ok := value.AsInt(spec)
	if !ok || (n != 1 && n != -1) {
		return mongoerr.New(mongoerr.BadValue, "The $sort element value must be either 1 or -1")
	}
	sort.SliceStable(list, func(i, j int) bool { return value.Compare(list[i], list[j])*int(n) < 0 })
	return nil
}

func addToSet(e *editor, m modifier) error {
	list, existed, err := array(e, m)
	if err != nil {
		return err
	}
	items := bson.A{m.arg}
	if d, ok := m.arg.(bson.D); ok && len(d) > 0 && d[0].Key == "$each" {
		each, isArray := d[0].Value.(bson.A)
		if !isArray || len(d) != 1 {
			return mongoerr.New(mongoerr.TypeMismatch, "The argument to $each in $addToSet must be an array, alone")
		}
		items = each
	}
	out := append(bson.A{}, list...)
	for _, item := range items {
		found := false
		for _, v := range out {
			found = found || value.Equal(v, item)
		}
		if !found {
			out = append(out, value.Clone(item))
		}
	}
	if len(out) == len(list) && existed {
		return nil
	}
	return e.set(m.parts, out)
}

// viable refuses a path that leads through something that could hold no such field: operators that
// only remove from an array leave it alone where it is not there, but want to know that it could
// be. [MongoDB src/mongo/db/update/modifier_node.cpp]
func viable(e *editor, m modifier) error {
	for n := len(m.parts) - 1; n > 0; n-- {
		at, ok := e.get(m.parts[:n])
		if !ok {
			continue
		}
		switch at.(type) {
		case bson.D:
			return nil
		case bson.A:
			if _, ok := value.Index(m.parts[n]); ok {
				return nil
			}
		}
		return mongoerr.New(mongoerr.PathNotViable, "Cannot use the part (%s) of (%s) to traverse the element (%v)", m.parts[n], m.path, at)
	}
	return nil
}

func pull(e *editor, m modifier) error {
	gone, err := pulled(m.arg, e.env)
	if err != nil {
		return err
	}
	list, existed, err := array(e, m)
	if err != nil {
		return err
	}
	if !existed {
		return viable(e, m)
	}
	out := bson.A{}
	for _, v := range list {
		hit, err := gone(v)
		if err != nil {
			return err
		}
		if !hit {
			out = append(out, v)
		}
	}
	return e.set(m.parts, out)
}

// pulled selects the elements that $pull removes: documents that match a filter, whatever operators
// or a regular expression match, or else what equals the value. [MongoDB
// src/mongo/db/update/pull_node.cpp]
func pulled(arg any, env *Env) (predicate, error) {
	d, isDoc := arg.(bson.D)
	_, isRegex := arg.(bson.Regex)
	switch {
	case isDoc && !isOperators(d):
		p, err := compileAll(d, env)
		return func(v any) (bool, error) {
			if _, ok := v.(bson.D); !ok {
				return false, nil
			}
			return p(v)
		}, err
	case isDoc, isRegex:
		leaves, err := compileField(arg, env)
		p := atPath("", leaves)
		return func(v any) (bool, error) { return p(bson.D{{Key: "", Value: v}}) }, err
	}
	return func(v any) (bool, error) { return value.Equal(v, arg), nil }, nil
}

func pullAll(e *editor, m modifier) error {
	list, existed, err := array(e, m)
	if err != nil {
		return err
	}
	gone := m.arg.(bson.A)
	if !existed {
		return viable(e, m)
	}
	out := bson.A{}
	for _, v := range list {
		if hit, _ := inArray([]any{v, gone}); hit == false {
			out = append(out, v)
		}
	}
	return e.set(m.parts, out)
}

func pop(e *editor, m modifier) error {
	old, _ := e.get(m.parts)
	list, existed, err := array(e, m)
	switch {
	case err != nil:
		return mongoerr.New(mongoerr.TypeMismatch, "Path '%s' contains an element of non-array type '%s'", m.path, TypeName(old))
	case !existed:
		return viable(e, m)
	case len(list) == 0:
		return nil
	}
	if n, _ := value.AsInt(m.arg); n == 1 {
		return e.set(m.parts, append(bson.A{}, list[:len(list)-1]...))
	}
	return e.set(m.parts, append(bson.A{}, list[1:]...))
}
