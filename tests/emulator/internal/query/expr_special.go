package query

import (
	"maps"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/mongoerr"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/value"
)

// special operators take their arguments unevaluated: they evaluate lazily, bind
// variables, or are no function of values.
var special = map[string]func(arg any) (*Expr, error){}

func init() {
	maps.Copy(special, map[string]func(arg any) (*Expr, error){
		"$literal": func(arg any) (*Expr, error) { return constant(arg), nil },
		"$and":     func(arg any) (*Expr, error) { return logic(arg, false) },
		"$or":      func(arg any) (*Expr, error) { return logic(arg, true) },
		"$cond":    compileCond,
		"$ifNull":  compileIfNull,
		"$switch":  compileSwitch,
		"$let":     compileLet,
		"$map":     compileMap,
		"$filter":  compileFilter,
		"$reduce":  compileReduce,
		"$getField": func(arg any) (*Expr, error) {
			return compileGetField(arg)
		},
		"$setField":   func(arg any) (*Expr, error) { return compileSetField("$setField", arg) },
		"$unsetField": func(arg any) (*Expr, error) { return compileSetField("$unsetField", arg) },
	})
}

func logic(arg any, stopAt bool) (*Expr, error) {
	list, ok := arg.(bson.A)
	if !ok {
		list = bson.A{arg}
	}
	exprs, err := compileList(list)
	if err != nil {
		return nil, err
	}
	return &Expr{func(s *scope) (any, error) {
		for _, e := range exprs {
			v, err := e.eval(s)
			if err != nil {
				return nil, err
			}
			if truthy(v) == stopAt {
				return stopAt, nil
			}
		}
		return !stopAt, nil
	}}, nil
}

// named compiles the named arguments of an operator and refuses unknown ones.
func named(op string, arg any, required, optional []string) (params, error) {
	d, ok := arg.(bson.D)
	if !ok {
		return nil, mongoerr.New(mongoerr.FailedToParse, "%s only supports an object as its argument", op)
	}
	out := params{}
	for _, f := range d {
		known := false
		for _, n := range append(required, optional...) {
			known = known || n == f.Key
		}
		if !known {
			return nil, mongoerr.New(mongoerr.FailedToParse, "Unrecognized parameter to %s: %s", op, f.Key)
		}
		e, err := CompileExpr(f.Value)
		if err != nil {
			return nil, err
		}
		out[f.Key] = e
	}
	for _, n := range required {
		if out[n] == nil {
			return nil, mongoerr.New(mongoerr.FailedToParse, "Missing '%s' parameter to %s", n, op)
		}
	}
	return out, nil
}

func compileCond(arg any) (*Expr, error) {
	if list, ok := arg.(bson.A); ok {
		if len(list) != 3 {
			return nil, mongoerr.New(16020, "Expression $cond takes exactly 3 arguments. %d were passed in.", len(list))
		}
		arg = bson.D{{Key: "if", Value: list[0]}, {Key: "then", Value: list[1]}, {Key: "else", Value: list[2]}}
	}
	if d, ok := arg.(bson.D); ok {
		for i, name := range []string{"if", "then", "else"} {
			if _, has := value.Get(d, name); !has {
				return nil, mongoerr.New(17080+int32(i), "Missing '%s' parameter to $cond", name)
			}
		}
	}
	p, err := named("$cond", arg, []string{"if", "then", "else"}, nil)
	if err != nil {
		return nil, err
	}
	return &Expr{func(s *scope) (any, error) {
		c, err := p["if"].eval(s)
		if err != nil {
			return nil, err
		}
		if truthy(c) {
			return p["then"].eval(s)
		}
		return p["else"].eval(s)
	}}, nil
}

func compileIfNull(arg any) (*Expr, error) {
	list, _ := arg.(bson.A)
	if len(list) < 2 {
		return nil, mongoerr.New(1257300, "$ifNull needs at least two arguments, had: %d", len(list))
	}
	exprs, err := compileList(list)
	if err != nil {
		return nil, err
	}
	return &Expr{func(s *scope) (v any, err error) {
		for _, e := range exprs {
			if v, err = e.eval(s); err != nil || !nullish(v) {
				return v, err
			}
		}
		return v, nil
	}}, nil
}

func compileSwitch(arg any) (*Expr, error) {
	d, _ := arg.(bson.D)
	b, _ := value.Get(d, "branches")
	list, ok := b.(bson.A)
	if !ok || len(list) == 0 {
		return nil, mongoerr.New(40068, "$switch requires at least one branch")
	}
	var cases, thens []*Expr
	possible := false
	for _, item := range list {
		when := field(asDocument(item), "case")
		possible = possible || truthy(when)
		p, err := named("$switch branch", item, []string{"case", "then"}, nil)
		if err != nil {
			return nil, err
		}
		cases, thens = append(cases, p["case"]), append(thens, p["then"])
	}
	var fallback *Expr
	if dv, has := value.Get(d, "default"); has {
		var err error
		if fallback, err = CompileExpr(dv); err != nil {
			return nil, err
		}
	}
	if fallback == nil && !possible { // a server sees it before it begins
		return nil, mongoerr.New(40069, "Cannot execute a switch statement where all the cases evaluate to false without a default.")
	}
	return &Expr{func(s *scope) (any, error) {
		for i := range cases {
			c, err := cases[i].eval(s)
			if err != nil {
				return nil, err
			}
			if truthy(c) {
				return thens[i].eval(s)
			}
		}
		if fallback == nil {
			return nil, mongoerr.New(40066, "$switch could not find a matching branch for an input, and no default was specified.")
		}
		return fallback.eval(s)
	}}, nil
}

func compileLet(arg any) (*Expr, error) {
	d, _ := arg.(bson.D)
	vars, _ := value.Get(d, "vars")
	defs, ok := vars.(bson.D)
	body, has := value.Get(d, "in")
	if !ok || !has || len(d) != 2 {
		return nil, mongoerr.New(16876, "$let needs exactly 'vars' and 'in'")
	}
	exprs := make([]*Expr, len(defs))
	for i, f := range defs {
		var err error
		if exprs[i], err = CompileExpr(f.Value); err != nil {
			return nil, err
		}
	}
	in, err := CompileExpr(body)
	if err != nil {
		return nil, err
	}
	return &Expr{func(s *scope) (any, error) {
		inner := s
		for i, e := range exprs {
			v, err := e.eval(s)
			if err != nil {
				return nil, err
			}
			inner = inner.with(defs[i].Key, v)
		}
		return in.eval(inner)
	}}, nil
}

// overArray compiles {input, as, <body>}; each is called with the variable bound.
func overArray(op string, arg any, body string, each func(list bson.A, as string, p params, s *scope) (any, error)) (*Expr, error) {
	d, _ := arg.(bson.D)
	as := "this"
	if n, ok := value.Get(d, "as"); ok {
		if as, ok = n.(string); !ok {
			return nil, mongoerr.New(mongoerr.FailedToParse, "%s: 'as' must be a string", op)
		}
		d = value.Remove(value.CloneDoc(d), "as")
	}
	var more []string
	if op == "$filter" {
		more = []string{"limit"}
	}
	p, err := named(op, d, []string{"input", body}, more)
	if err != nil {
		return nil, err
	}
	return &Expr{func(s *scope) (any, error) {
		in, err := p["input"].eval(s)
		if err != nil || nullish(in) {
			return nil, err
		}
		list, ok := in.(bson.A)
		if !ok {
			return nil, mongoerr.New(16883, "input to %s must be an array not %s", op, TypeName(in))
		}
		return each(list, as, p, s)
	}}, nil
}

func compileMap(arg any) (*Expr, error) {
	return overArray("$map", arg, "in", func(list bson.A, as string, p params, s *scope) (any, error) {
		out := make(bson.A, 0, len(list))
		for _, v := range list {
			got, err := p["in"].eval(s.with(as, v))
			if err != nil {
				return nil, err
			}
			if _, missing := got.(value.Missing); missing {
				got = nil
			}
			out = append(out, got)
		}
		return out, nil
	})
}

func compileFilter(arg any) (*Expr, error) {
	return overArray("$filter", arg, "cond", func(list bson.A, as string, p params, s *scope) (any, error) {
		out := bson.A{}
		most, err := p.limit(s)
		if err != nil {
			return nil, err
		}
		for _, v := range list {
			if len(out) == most {
				break
			}
			keep, err := p["cond"].eval(s.with(as, v))
			if err != nil {
				return nil, err
			}
			if truthy(keep) {
				out = append(out, v)
			}
		}
		return out, nil
	})
}

func compileReduce(arg any) (*Expr, error) {
	p, err := named("$reduce", arg, []string{"input", "initialValue", "in"}, nil)
	if err != nil {
		return nil, err
	}
	return &Expr{func(s *scope) (any, error) {
		in, err := p["input"].eval(s)
		if err != nil || nullish(in) {
			return nil, err
		}
		list, ok := in.(bson.A)
		if !ok {
			return nil, mongoerr.New(40080, "$reduce requires that 'input' be an array, found: %s", TypeName(in))
		}
		acc, err := p["initialValue"].eval(s)
		for _, v := range list {
			if err != nil {
				break
			}
			acc, err = p["in"].eval(s.with("value", acc).with("this", v))
		}
		return acc, err
	}}, nil
}

func compileGetField(arg any) (*Expr, error) {
	d, ok := arg.(bson.D)
	if _, has := value.Get(d, "field"); !ok || !has {
		arg = bson.D{{Key: "field", Value: arg}, {Key: "input", Value: "$$CURRENT"}}
	}
	p, err := named("$getField", arg, []string{"field", "input"}, nil)
	if err != nil {
		return nil, err
	}
	return &Expr{func(s *scope) (any, error) {
		f, err := p["field"].eval(s)
		if err != nil {
			return nil, err
		}
		name, ok := f.(string)
		if !ok {
			return nil, mongoerr.New(3041704, "$getField requires 'field' to evaluate to type String, but got %s", TypeName(f))
		}
		in, err := p["input"].eval(s)
		if err != nil || nullish(in) {
			return in, err
		}
		doc, _ := in.(bson.D)
		if v, ok := value.Get(doc, name); ok {
			return v, nil
		}
		return value.Missing{}, nil
	}}, nil
}

func compileSetField(op string, arg any) (*Expr, error) {
	required := []string{"field", "input", "value"}
	if op == "$unsetField" {
		required = required[:2]
	}
	p, err := named(op, arg, required, nil)
	if err != nil {
		return nil, err
	}
	return &Expr{func(s *scope) (any, error) {
		f, err := p["field"].eval(s)
		if err != nil {
			return nil, err
		}
		name, ok := f.(string)
		if !ok {
			return nil, mongoerr.New(4161107, "%s requires 'field' to evaluate to type String", op)
		}
		in, err := p["input"].eval(s)
		if err != nil || nullish(in) {
			return nil, err
		}
		doc, ok := in.(bson.D)
		if !ok {
			return nil, mongoerr.New(4161105, "%s requires 'input' to evaluate to type Object", op)
		}
		var v any = value.Missing{}
		if p["value"] != nil {
			if v, err = p["value"].eval(s); err != nil {
				return nil, err
			}
		}
		out := append(bson.D{}, doc...)
		if _, missing := v.(value.Missing); missing {
			return value.Remove(out, name), nil
		}
		return value.Set(out, name, v), nil
	}}, nil
}

// limit returns how many elements $filter is asked for; negative: all.
func (p params) limit(s *scope) (int, error) {
	if p["limit"] == nil {
		return -1, nil
	}
	v, err := p["limit"].eval(s)
	if err != nil || nullish(v) {
		return -1, err
	}
	n, ok := value.AsInt(v)
	if !ok || n < 1 {
		return 0, mongoerr.New(327392, "$filter: limit must be a whole number greater than 0")
	}
	return int(n), nil
}
