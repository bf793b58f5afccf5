// Package query is the embedded MongoDB's query language on decoded documents:
// match filters, expressions, projections, sorts, updates and aggregation stages.
//
// Everything here is pure. What is compiled without an error is executed as a
// server would; an operator, stage or option that is not implemented is an error
// that names it. No text search, no geometry, no JavaScript.
package query

import (
	"errors"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/mongoerr"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/value"
)

type predicate func(d any) (bool, error)

// Matcher is a compiled filter.
type Matcher struct {
	test predicate
	env  *Env
}

// Compile reads a filter document.
func Compile(filter bson.D, env *Env) (*Matcher, error) {
	p, err := compileAll(filter, env)
	if err != nil {
		return nil, err
	}
	return &Matcher{test: p, env: env}, nil
}

// Match reports whether the document satisfies the filter; an error comes from $expr, or means that
// the command was interrupted.
func (m *Matcher) Match(d bson.D) (bool, error) {
	if err := m.env.interrupted(); err != nil {
		return false, err
	}
	return m.test(d)
}

func compileAll(filter bson.D, env *Env) (predicate, error) {
	parts := make([]predicate, 0, len(filter))
	for _, e := range filter {
		p, err := compileTop(e.Key, e.Value, env)
		if err != nil {
			return nil, err
		}
		if p != nil {
			parts = append(parts, p)
		}
	}
	return and(parts), nil
}

func and(parts []predicate) predicate {
	if len(parts) == 1 {
		return parts[0]
	}
	return func(d any) (bool, error) {
		for _, p := range parts {
			if ok, err := p(d); !ok || err != nil {
				return false, err
			}
		}
		return true, nil
	}
}

func or(parts []predicate) predicate {
	return func(d any) (bool, error) {
		for _, p := range parts {
			if ok, err := p(d); ok || err != nil {
				return ok, err
			}
		}
		return false, nil
	}
}

func not(p predicate) predicate {
	return func(d any) (bool, error) {
		ok, err := p(d)
		return !ok, err
	}
}

func compileTop(key string, v any, env *Env) (predicate, error) {
	switch key {
	case "$and", "$or", "$nor":
		list, ok := v.(bson.A)
		if !ok || len(list) == 0 {
			return nil, mongoerr.New(mongoerr.BadValue, "%s must be a nonempty array", key)
		}
		parts := make([]predicate, 0, len(list))
		for _, item := range list {
			d, ok := item.(bson.D)
			if !ok {
				return nil, mongoerr.New(mongoerr.BadValue, "%s argument's entries must be objects", key)
			}
			p, err := compileAll(d, env)
			if err != nil {
				return nil, err
			}
			parts = append(parts, p)
		}
		switch key {
		case "$and":
			return and(parts), nil
		case "$or":
			return or(parts), nil
		}
		return not(or(parts)), nil
	case "$expr":
		e, err := CompileExpr(v)
		if err != nil {
			return nil, err
		}
		return func(d any) (bool, error) {
			got, err := e.Eval(d, env)
			return truthy(got), err
		}, nil
	case "$jsonSchema":
		return compileSchema(v)
	case "$comment":
		return nil, nil
	case "$alwaysTrue", "$alwaysFalse":
		want := key == "$alwaysTrue"
		return func(any) (bool, error) { return want, nil }, nil
	}
	if slices.Contains(foreignFilters, key) {
		return nil, mongoerr.Unsupported("the query operator %s", key)
	}
	if strings.HasPrefix(key, "$") {
		return nil, mongoerr.New(mongoerr.BadValue, "unknown top level operator: %s. If you have a field name that starts with a '$' symbol, consider using $getField or $setField.", key)
	}
	test, err := compileField(v, env)
	if err != nil {
		return nil, err
	}
	return atPath(key, test), nil
}

// leaf tests the values that a path reaches; whole reports whether the value is the field itself or
// an element of the array at the end of the path.
type leaf struct {
	test     func(v any) (bool, error)
	elements bool   // also try each element of an array
	negate   bool   // holds when no value passes ($ne, $nin, $not, $exists: false)
	none     []leaf // instead of test: holds when these do not all hold ($not)
}

func atPath(path string, leaves []leaf) predicate {
	parts := value.Split(path)
	tests := make([]predicate, 0, len(leaves))
	for _, l := range leaves {
		if l.none != nil {
			tests = append(tests, not(atPath(path, l.none)))
			continue
		}
		tests = append(tests, func(d any) (bool, error) {
			var failed error
			hit := value.Walk(d, parts, func(v any, byIndex bool) bool {
				ok, err := l.test(v)
				if a, isArray := v.(bson.A); isArray && l.elements && !byIndex {
					for i := 0; i < len(a) && !ok && err == nil; i++ {
						ok, err = l.test(a[i])
					}
				}
				failed = err
				return ok || err != nil
			})
			return hit != l.negate, failed
		})
	}
	return and(tests)
}

func isOperators(v any) bool {
	d, ok := v.(bson.D)
	return ok && len(d) > 0 && strings.HasPrefix(d[0].Key, "$") && d[0].Key != "$ref" && d[0].Key != "$id"
}

func compileField(v any, env *Env) ([]leaf, error) {
	if !isOperators(v) {
		if r, ok := v.(bson.Regex); ok {
			return regexLeaf(r)
		}
		l, err := equals(v, env)
		return []leaf{l}, err
	}
	var out []leaf
	d := v.(bson.D)
	for _, e := range d {
		ls, err := compileOperator(e.Key, e.Value, d, env)
		if err != nil {
			return nil, err
		}
		out = append(out, ls...)
	}
	return out, nil
}

func equals(want any, env *Env) (leaf, error) {
	if _, undefined := want.(bson.Undefined); undefined {
		return leaf{}, mongoerr.New(mongoerr.BadValue, "cannot compare to undefined")
	}
	want = env.key(want)
	return leaf{elements: true, test: func(v any) (bool, error) { return same(env.key(v), want), nil }}, nil
}

// same reports equality in a filter: null also stands for a missing field.
func same(v, want any) bool {
	if want == nil {
		switch v.(type) {
		case nil, value.Missing, bson.Undefined:
			return true
		}
		return false
	}
	return value.Equal(v, want)
}

func compare(op string, want any, env *Env) leaf {
	class := value.Class(want)
	want = env.key(want)
	return leaf{elements: true, test: func(v any) (bool, error) {
		v = env.key(v)
		if class == 5 { // only the closed comparisons hold for null, and for missing
			return (op == "$gte" || op == "$lte") && same(v, nil), nil
		}
		if value.Class(v) != class && class != -1 && class != 127 {
			return false, nil
		}
		if a, ok := value.AsFloat(v); ok && a != a {
			b, _ := value.AsFloat(want)
			return b != b && (op == "$gte" || op == "$lte"), nil
		}
		if b, ok := value.AsFloat(want); ok && b != b {
			return false, nil
		}
		if _, missing := v.(value.Missing); missing {
			return false, nil
		}
		c := value.Compare(v, want)
		switch op {
		case "$lt":
			return c < 0, nil
		case "$lte":
			return c <= 0, nil
		case "$gt":
			return c > 0, nil
		default:
			return c >= 0, nil
		}
	}}
}

func regexLeaf(r bson.Regex) ([]leaf, error) {
	re, err := compileRegex(r.Pattern, r.Options)
	if err != nil {
		return nil, err
	}
	return []leaf{{elements: true, test: func(v any) (bool, error) {
		switch t := v.(type) {
		case string:
			return re.MatchString(t), nil
		case bson.Symbol:
			return re.MatchString(string(t)), nil
		case bson.Regex:
			return t == r, nil
		}
		return false, nil
	}}}, nil
}

func compileRegex(pattern, options string) (*regexp.Regexp, error) {
	var flags strings.Builder
	for _, o := range options {
		switch o {
		case 'i', 'm', 's':
			flags.WriteString(string(o))
		case 'u':
		default:
			return nil, mongoerr.Unsupported("regular expression option %q", string(o))
		}
	}
	if flags.String() != "" {
		pattern = "(?" + flags.String() + ")" + pattern
	}
	re, err := regexp.Compile(pattern)
	if e, is := errors.AsType[*syntax.Error](err); is {
		switch e.Code {
		case syntax.ErrInvalidPerlOp, syntax.ErrInvalidEscape, syntax.ErrInvalidRepeatOp, syntax.ErrInvalidRepeatSize, syntax.ErrInvalidCharRange:
			return nil, mongoerr.Unsupported("the regular expression %q, of which Go's regexp does not take %q", pattern, e.Expr)
		default:
			return nil, mongoerr.New(51091, "Regular expression is invalid: %v", err)
		}
	}
	return re, err
}
