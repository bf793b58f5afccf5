package query

import (
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/mongoerr"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/value"
)

// Env is the environment of a command's expressions: the moment it started and its `let` variables.
type Env struct {
	Now         time.Time
	ClusterTime bson.Timestamp
	Vars        bson.D
	Collation   *value.Collation // nil: the order of bytes
	Version     [2]int32         // of the server that this one is like; zero: the newest
	// Interrupted returns the error by which the command ends, such as that its time is over; nil:
	// never.
	Interrupted func() error
	// Collection gives the documents of another collection of the command's database, as the
	// command sees them; nil: none is reached.
	Collection func(name string) ([]bson.D, error)
}

// before reports whether the server is older than a version.
func (e *Env) before(major, minor int32) bool {
	if e == nil || e.Version == [2]int32{} {
		return false
	}
	return e.Version[0] < major || (e.Version[0] == major && e.Version[1] < minor)
}

func (e *Env) interrupted() error {
	if e == nil || e.Interrupted == nil {
		return nil
	}
	return e.Interrupted()
}

// with gives an environment with more variables, which hide others of the same names.
func (e *Env) with(vars bson.D) *Env {
	inner := *e
	inner.Vars = slices.Clone(e.Vars)
	for _, v := range vars {
		inner.Vars = value.Set(inner.Vars, v.Key, v.Value)
	}
	return &inner
}

// Let evaluates a command's `let`: its values are expressions without a document.
func (e *Env) Let(vars bson.D) error {
	for _, v := range vars {
		x, err := CompileExpr(v.Value)
		if err != nil {
			return err
		}
		got, err := x.Eval(value.Missing{}, e)
		if err != nil {
			return err
		}
		e.Vars = append(e.Vars, bson.E{Key: v.Key, Value: got})
	}
	return nil
}

// Expr is a compiled aggregation expression.
type Expr struct{ eval func(s *scope) (any, error) }

type scope struct {
	root any
	env  *Env
	name string // innermost variable; outer ones follow
	val  any
	up   *scope
}

func (s *scope) with(name string, v any) *scope {
	return &scope{root: s.root, env: s.env, name: name, val: v, up: s}
}

// Eval computes the expression for one document. value.Missing means "no value".
func (e *Expr) Eval(root any, env *Env) (any, error) { return e.eval(&scope{root: root, env: env}) }

func constant(v any) *Expr { return &Expr{func(*scope) (any, error) { return v, nil }} }

// CompileExpr reads an expression: a literal, "$path", "$$var", an operator, a document or an
// array.
func CompileExpr(v any) (*Expr, error) {
	switch t := v.(type) {
	case string:
		if strings.HasPrefix(t, "$$") {
			return compileVariable(t[2:])
		}
		if strings.HasPrefix(t, "$") {
			if t == "$" {
				return nil, mongoerr.New(16872, "'$' by itself is not a valid FieldPath")
			}
			path := value.Split(t[1:])
			return &Expr{func(s *scope) (any, error) { return follow(s.root, path), nil }}, nil
		}
		return constant(t), nil
	case bson.A:
		items, err := compileList(t)
		if err != nil {
			return nil, err
		}
		return &Expr{func(s *scope) (any, error) {
			out := make(bson.A, len(items))
			for i, e := range items {
				got, err := e.eval(s)
				if err != nil {
					return nil, err
				}
				if _, missing := got.(value.Missing); missing {
					got = nil
				}
				out[i] = got
			}
			return out, nil
		}}, nil
	case bson.D:
		if len(t) > 0 && strings.HasPrefix(t[0].Key, "$") {
			if len(t) != 1 {
				return nil, mongoerr.New(15983, "an object representing an expression must have exactly one field: %s has more", t[0].Key)
			}
			return compileCall(t[0].Key, t[0].Value)
		}
		return compileDocument(t)
	default:
		return constant(v), nil
	}
}

func compileList(a bson.A) ([]*Expr, error) {
	out := make([]*Expr, len(a))
	for i, item := range a {
		e, err := CompileExpr(item)
		if err != nil {
			return nil, err
		}
		out[i] = e
	}
	return out, nil
}

func compileDocument(d bson.D) (*Expr, error) {
	exprs := make([]*Expr, len(d))
	for i, f := range d {
		if strings.HasPrefix(f.Key, "$") || strings.Contains(f.Key, ".") {
			return nil, mongoerr.New(16410, "field name %q is not allowed in an object expression", f.Key)
		}
		e, err := CompileExpr(f.Value)
		if err != nil {
			return nil, err
		}
		exprs[i] = e
	}
	return &Expr{func(s *scope) (any, error) {
		out := make(bson.D, 0, len(d))
		for i, e := range exprs {
			got, err := e.eval(s)
			if err != nil {
				return nil, err
			}
			if _, missing := got.(value.Missing); !missing {
				out = append(out, bson.E{Key: d[i].Key, Value: got})
			}
		}
		return out, nil
	}}, nil
}

func compileVariable(ref string) (*Expr, error) {
	name, rest, dotted := strings.Cut(ref, ".")
	var path []string
	if dotted {
		path = value.Split(rest)
	}
	switch name {
	case "ROOT", "CURRENT":
		return &Expr{func(s *scope) (any, error) { return follow(s.root, path), nil }}, nil
	case "REMOVE":
		return constant(value.Missing{}), nil
	case "NOW":
		return &Expr{func(s *scope) (any, error) { return bson.NewDateTimeFromTime(s.env.Now), nil }}, nil
	case "KEEP", "PRUNE", "DESCEND":
		return &Expr{func(s *scope) (any, error) {
			if v, ok := value.Get(s.env.Vars, name); ok { // inside of $redact alone
				return v, nil
			}
			return nil, mongoerr.New(17276, "Use of undefined variable: %s", name)
		}}, nil
	case "CLUSTER_TIME":
		return &Expr{func(s *scope) (any, error) { return s.env.ClusterTime, nil }}, nil
	}
	if name == "" || strings.ToUpper(name) == name {
		return nil, mongoerr.Unsupported("system variable $$%s", name)
	}
	return &Expr{func(s *scope) (any, error) {
		for at := s; at != nil; at = at.up {
			if at.name == name {
				return follow(at.val, path), nil
			}
		}
		if v, ok := value.Get(s.env.Vars, name); ok {
			return follow(v, path), nil
		}
		return nil, mongoerr.New(17276, "Use of undefined variable: %s", name)
	}}, nil
}

// follow reads a field path of the expression language: arrays on the way become
// arrays of what their documents hold.
func follow(v any, path []string) any {
	if len(path) == 0 {
		return v
	}
	switch t := v.(type) {
	case bson.D:
		child, ok := value.Get(t, path[0])
		if !ok {
			return value.Missing{}
		}
		return follow(child, path[1:])
	case bson.A:
		out := bson.A{}
		for _, e := range t {
			got := follow(e, path)
			if _, missing := got.(value.Missing); !missing {
				out = append(out, got)
			}
		}
		return out
	default:
		return value.Missing{}
	}
}

func truthy(v any) bool {
	switch t := v.(type) {
	case nil, value.Missing, bson.Undefined:
		return false
	case bool:
		return t
	}
	if f, ok := value.AsFloat(v); ok {
		return f != 0
	}
	return true
}

func nullish(v any) bool {
	switch v.(type) {
	case nil, value.Missing, bson.Undefined:
		return true
	}
	return false
}

// operator computes over evaluated arguments; nary operators that need lazy
// evaluation or variables are in special.
type operator struct {
	min, max int // number of arguments; max < 0: any
	apply    func(args []any) (any, error)
}

// comparing are the operators that compare: to something else than the values, or to one of them.
var comparing = map[string]int{
	"$eq": toTruth, "$ne": toTruth, "$gt": toTruth, "$gte": toTruth, "$lt": toTruth, "$lte": toTruth, "$cmp": toTruth, "$in": toTruth,
	"$indexOfArray": toTruth, "$setEquals": toTruth, "$setIsSubset": toTruth,
	"$max": toValue, "$min": toValue, "$setUnion": toValue, "$setIntersection": toValue, "$setDifference": toValue,
}

const (
	toTruth = iota + 1
	toValue
)

func isOperator(name string) bool {
	_, ok := operators[name]
	return ok
}

func compileCall(name string, arg any) (*Expr, error) {
	if c, ok := special[name]; ok {
		return c(arg)
	}
	op, ok := operators[name]
	if !ok && slices.Contains(foreignExpressions, name) {
		return nil, mongoerr.Unsupported("the expression %s", name)
	}
	if !ok {
		return nil, mongoerr.New(168, "Unrecognized expression '%s'", name)
	}
	list, isList := arg.(bson.A)
	if !isList {
		list = bson.A{arg}
	}
	if len(list) < op.min || (op.max >= 0 && len(list) > op.max) {
		if op.max > op.min {
			return nil, mongoerr.New(28667, "Expression %s takes at least %d arguments, and at most %d, but %d were passed in.", name, op.min, op.max, len(list))
		}
		return nil, mongoerr.New(16020, "Expression %s takes between %d and %d arguments. %d were passed in.", name, op.min, op.max, len(list))
	}
	exprs, err := compileList(list)
	if err != nil {
		return nil, err
	}
	return &Expr{func(s *scope) (any, error) {
		args := make([]any, len(exprs))
		for i, e := range exprs {
			var err error
			if args[i], err = e.eval(s); err != nil {
				return nil, err
			}
		}
		if s.env.collated() && value.HasText(bson.A(args)) {
			switch comparing[name] {
			case toTruth:
				for i := range args {
					args[i] = s.env.key(args[i])
				}
			case toValue:
				return nil, mongoerr.Unsupported("collation with %s", name)
			default:
			}
		}
		return op.apply(args)
	}}, nil
}
