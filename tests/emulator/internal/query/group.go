package query

import (
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/keystring"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/mongoerr"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/value"
)

type accumulator struct {
	field string
	op    string
	expr  *Expr
	n     *Expr // how many, for those that keep several
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
	accs, err := compileAccumulators(value.Remove(slices.Clone(d), "_id"))
	return Stage{All: func(docs []bson.D) ([]bson.D, error) { return runGroup(docs, id, accs, env) }}, err
}

func compileAccumulators(d bson.D) (accs []accumulator, err error) {
	for _, f := range d {
		spec, _ := f.Value.(bson.D)
		if len(spec) != 1 {
			return nil, mongoerr.New(40234, "The field '%s' must be an accumulator object", f.Key)
		}
		a := accumulator{field: f.Key, op: spec[0].Key}
		arg := spec[0].Value
		switch a.op {
		case "$sum", "$min", "$max", "$first", "$last", "$push", "$addToSet", "$avg", "$count", "$mergeObjects":
		case "$firstN", "$lastN", "$minN", "$maxN":
			n, _ := arg.(bson.D)
			if a.n, err = CompileExpr(field(n, "n")); err != nil {
				return nil, err
			}
			input, has := value.Get(n, "input")
			if !has || len(n) != 2 {
				return nil, mongoerr.New(5787900, "%s needs exactly 'n' and 'input'", a.op)
			}
			arg = input
		default:
			if slices.Contains(foreignAccumulators, a.op) {
				return nil, mongoerr.Unsupported("the accumulator %s", a.op)
			}
			return nil, mongoerr.New(15952, "unknown group operator '%s'", a.op)
		}
		if a.expr, err = CompileExpr(arg); err != nil {
			return nil, err
		}
		accs = append(accs, a)
	}
	return accs, nil
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
		k := keystring.Of(env.key(key))
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
			if err := g.add(i, a.op, v, env); err != nil {
				return nil, err
			}
		}
	}
	out := make([]bson.D, 0, len(order))
	for _, g := range order {
		doc := bson.D{{Key: "_id", Value: g.id}}
		for i, a := range accs {
			v, err := g.result(i, a, env)
			if err != nil {
				return nil, err
			}
			doc = append(doc, bson.E{Key: a.field, Value: v})
		}
		out = append(out, doc)
	}
	return out, nil
}

func (g *group) add(i int, op string, v any, env *Env) error {
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
		sum, err := total(g.values[i], v)
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
		if nullish(v) || (!first && value.Compare(env.key(v), env.key(g.values[i]))*sign <= 0) {
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
			if slices.ContainsFunc(list, func(have any) bool { return value.Equal(env.key(have), env.key(v)) }) {
				return nil
			}
		}
		g.values[i] = append(list, v)
	case "$firstN", "$lastN", "$minN", "$maxN":
		list, _ := g.values[i].(bson.A)
		if missing {
			v = nil
		}
		g.values[i] = append(list, v)
	case "$mergeObjects":
		before := g.values[i]
		if first {
			before = bson.D{}
		}
		merged, err := mergeObjects([]any{before, v})
		if err != nil {
			return err
		}
		g.values[i] = merged
	}
	g.counts[i]++
	return nil
}

func (g *group) result(i int, a accumulator, env *Env) (any, error) {
	switch a.op {
	case "$count":
		return int32(g.counts[i]), nil
	case "$sum":
		if g.counts[i] == 0 {
			return int32(0), nil
		}
	case "$avg":
		if g.counts[i] == 0 {
			return nil, nil
		}
		return divide([]any{g.values[i], int32(g.counts[i])})
	case "$push", "$addToSet":
		if g.values[i] == nil {
			return bson.A{}, nil
		}
	case "$firstN", "$lastN", "$minN", "$maxN":
		v, err := a.n.Eval(g.id, env)
		n, ok := value.AsInt(v)
		if err == nil && (!ok || n < 1) {
			err = mongoerr.New(5787908, "'n' must be greater than 0, found %v", v)
		}
		if err != nil {
			return nil, err
		}
		list, _ := g.values[i].(bson.A)
		return nOf(a.op, list, int(n)), nil
	}
	return g.values[i], nil
}
