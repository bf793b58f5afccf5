package query

import (
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/keystring"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/mongoerr"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/value"
)

type accumulator struct {
	field string
	op    string
	expr  *Expr
}

type group struct {
	id     any
	values []any
	counts []int64
}

func compileGroup(d bson.D, env *Env) (Stage, error) {
	idSpec, ok := value.Get(d, "_id")
	if !ok {
		return Stage{}, mongoerr.New(15955, "a group specification must include an _id")
	}
	id, err := CompileExpr(idSpec)
	if err != nil {
		return Stage{}, err
	}
	var accs []accumulator
	for _, f := range d {
		if f.Key == "_id" {
			continue
		}
		spec, _ := f.Value.(bson.D)
		if len(spec) != 1 {
			return Stage{}, mongoerr.New(40234, "The field '%s' must be an accumulator object", f.Key)
		}
		switch spec[0].Key {
		case "$sum", "$min", "$max", "$first", "$last", "$push", "$addToSet", "$avg", "$count":
		default:
			return Stage{}, mongoerr.New(15952, "unknown group operator '%s' (unknown, or not supported by the embedded MongoDB)", spec[0].Key)
		}
		e, err := CompileExpr(spec[0].Value)
		if err != nil {
			return Stage{}, err
		}
		accs = append(accs, accumulator{f.Key, spec[0].Key, e})
	}
	return Stage{All: func(docs []bson.D) ([]bson.D, error) { return runGroup(docs, id, accs, env) }}, nil
}

func runGroup(docs []bson.D, id *Expr, accs []accumulator, env *Env) ([]bson.D, error) {
	groups := map[string]*group{}
	var order []*group
	for _, d := range docs {
		key, err := id.Eval(d, env)
		if err != nil {
			return nil, err
		}
		if _, missing := key.(value.Missing); missing {
			key = nil
		}
		k := keystring.Of(key)
		g := groups[k]
		if g == nil {
			g = &group{id: key, values: make([]any, len(accs)), counts: make([]int64, len(accs))}
			groups[k] = g
			order = append(order, g)
		}
		for i, a := range accs {
			v, err := a.expr.Eval(d, env)
			if err != nil {
				return nil, err
			}
			if err := g.add(i, a.op, v); err != nil {
				return nil, err
			}
		}
	}
	out := make([]bson.D, 0, len(order))
	for _, g := range order {
		doc := bson.D{{Key: "_id", Value: g.id}}
		for i, a := range accs {
			doc = append(doc, bson.E{Key: a.field, Value: g.result(i, a.op)})
		}
		out = append(out, doc)
	}
	return out, nil
}

func (g *group) add(i int, op string, v any) error {
	_, missing := v.(value.Missing)
	first := g.counts[i] == 0
	switch op {
	case "$sum", "$avg":
		if value.Class(v) != 10 {
			return nil
		}
		if first {
			g.values[i] = int32(0)
		}
		sum, err := add(g.values[i], v)
		if err != nil {
			return err
		}
		g.values[i] = sum
	case "$count":
	case "$min", "$max":
		sign := 1
		if op == "$min" {
			sign = -1
		}
		if nullish(v) || (!first && value.Compare(v, g.values[i])*sign <= 0) {
			return nil
		}
		g.values[i] = v
	case "$first", "$last":
		if missing {
			v = nil
		}
		if first || op == "$last" {
			g.values[i] = v
		}
	case "$push", "$addToSet":
		list, _ := g.values[i].(bson.A)
		if missing {
			return nil
		}
		if op == "$addToSet" {
			if has, _ := inArray([]any{v, append(bson.A{}, list...)}); has == true {
				return nil
			}
		}
		g.values[i] = append(list, v)
	}
	g.counts[i]++
	return nil
}

func (g *group) result(i int, op string) any {
	switch op {
	case "$count":
		return int32(g.counts[i])
	case "$sum":
		if g.counts[i] == 0 {
			return int32(0)
		}
	case "$avg":
		if g.counts[i] == 0 {
			return nil
		}
		f, _ := value.AsFloat(g.values[i])
		return f / float64(g.counts[i])
	case "$push", "$addToSet":
		if g.values[i] == nil {
			return bson.A{}
		}
	}
	return g.values[i]
}
