package mongo

import (
	"context"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/engine"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/mongoerr"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/query"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/value"
)

// target is where $out or $merge write.
type target struct {
	ns      engine.NS
	replace bool // $out: the documents take the collection's place

	on                  []string
	matched, notMatched string
	pipeline            bson.A // instead of matched
	let                 bson.D
	hasLet              bool
}

// writes reports that the command writes: also an aggregate that ends with $out or $merge does.
func (r *request) writes() bool {
	if r.cmd.write || r.name != "aggregate" {
		return r.cmd.write
	}
	stages, _ := r.get("pipeline").(bson.A)
	if len(stages) == 0 {
		return false
	}
	last, _ := stages[len(stages)-1].(bson.D)
	return len(last) == 1 && (last[0].Key == "$out" || last[0].Key == "$merge")
}

// target cuts $out or $merge off the end of a pipeline; nil when it ends with neither.
func (r *request) target(stages bson.A) (*target, bson.A, error) {
	if len(stages) == 0 {
		return nil, stages, nil
	}
	last, _ := stages[len(stages)-1].(bson.D)
	if len(last) != 1 || (last[0].Key != "$out" && last[0].Key != "$merge") {
		return nil, stages, nil
	}
	if r.multi {
		return nil, nil, mongoerr.New(mongoerr.OperationNotInTransaction, "Operation not permitted in transaction :: caused by :: Aggregation stage %s cannot run within a multi-document transaction", last[0].Key)
	}
	if ok, _ := r.srv.primary(); !ok {
		return nil, nil, mongoerr.New(mongoerr.NotWritablePrimary, "not primary")
	}
	concern, _ := r.get("readConcern").(bson.D)
	if level, _ := value.Get(concern, "level"); level == "linearizable" {
		return nil, nil, mongoerr.New(mongoerr.InvalidOptions, "Aggregation stage %s cannot run with readConcern level linearizable", last[0].Key)
	}
	t := &target{ns: engine.NS{DB: r.db}, replace: last[0].Key == "$out", on: []string{"_id"}, matched: "merge", notMatched: "insert"}
	var err error
	if t.replace {
		err = t.namespace("$out", last[0].Value)
	} else {
		err = t.merge(last[0].Value)
	}
	return t, stages[:len(stages)-1], err
}

func (t *target) namespace(stage string, v any) error {
	switch to := v.(type) {
	case string:
		t.ns.Coll = to
	case bson.D:
		for _, e := range to {
			s, ok := e.Value.(string)
			switch {
			case ok && e.Key == "db":
				t.ns.DB = s
			case ok && e.Key == "coll":
				t.ns.Coll = s
			case e.Key == "timeseries":
				return mongoerr.Unsupported("time-series collections")
			default:
				return mongoerr.New(mongoerr.UnknownField, "BSON field '%s.%s' is an unknown field.", stage, e.Key)
			}
		}
	default:
		return mongoerr.New(16990, "%s only supports a string or object argument, but found %s", stage, query.TypeName(v))
	}
	if t.ns.Coll == "" {
		return mongoerr.New(mongoerr.InvalidNamespace, "Invalid %s target namespace, %s", stage, t.ns)
	}
	return nil
}

func (t *target) merge(v any) error {
	d, ok := v.(bson.D)
	if !ok {
		return t.namespace("$merge", v)
	}
	into, has := value.Get(d, "into")
	if !has {
		return mongoerr.New(mongoerr.MissingField, "BSON field '$merge.into' is missing but a required field")
	}
	if err := t.namespace("$merge", into); err != nil {
		return err
	}
	for _, e := range d {
		switch e.Key {
		case "into":
		case "on":
			list, isArray := e.Value.(bson.A)
			if !isArray {
				list = bson.A{e.Value}
			}
			t.on = nil
			for _, f := range list {
				path, isPath := f.(string)
				if !isPath {
					return mongoerr.New(51186, "$merge 'on' must be a string or an array of strings")
				}
				t.on = append(t.on, path)
			}
		case "let":
			t.let, t.hasLet = e.Value.(bson.D)
		case "whenMatched":
			if p, isPipeline := e.Value.(bson.A); isPipeline {
				t.pipeline, t.matched = p, "pipeline"
				continue
			}
			t.matched, _ = e.Value.(string)
			if !slices.Contains([]string{"replace", "keepExisting", "merge", "fail"}, t.matched) {
				return mongoerr.New(mongoerr.BadValue, "Enumeration value '%v' for field '$merge.whenMatched' is not a valid value.", e.Value)
			}
		case "whenNotMatched":
			t.notMatched, _ = e.Value.(string)
			if !slices.Contains([]string{"insert", "discard", "fail"}, t.notMatched) {
				return mongoerr.New(mongoerr.BadValue, "Enumeration value '%v' for field '$merge.whenNotMatched' is not a valid value.", e.Value)
			}
		default:
			return mongoerr.New(mongoerr.UnknownField, "BSON field '$merge.%s' is an unknown field.", e.Key)
		}
	}
	return nil
}

func (r *request) writeOut(ctx context.Context, t *target, docs []bson.D, ns engine.NS, opts bson.D) (bson.D, error) {
	var err error
	if t.replace {
		err = r.out(ctx, t.ns, docs)
	} else {
		err = r.merge(ctx, t, docs)
	}
	if err != nil {
		return nil, err
	}
	return r.openCursor(ns.String(), nil, opts)
}

// out fills a temporary collection and then gives it the target's name and indexes, as a server
// does and streams show.
func (r *request) out(ctx context.Context, ns engine.NS, docs []bson.D) error {
	was, existed := r.srv.eng.Lookup(ns)
	if was.View {
		return mongoerr.New(mongoerr.ViewNotSupported, "Namespace %s is a view, not a collection", ns)
	}
	if was.Capped {
		return mongoerr.New(17152, "namespace '%s' is capped so it can't be used for $out", ns)
	}
	hidden := engine.NS{DB: ns.DB, Coll: fmt.Sprintf("tmp.agg_out.%x", engine.NewUUID())}
	if err := r.srv.eng.Create(ctx, hidden, nil, was.Options); err != nil {
		return err
	}
	abandon := func(err error) error {
		_, _ = r.srv.eng.Drop(context.WithoutCancel(ctx), hidden)
		return err
	}
	for _, ix := range was.Indexes {
		again, err := parseIndex(value.Encode(ix.Spec))
		if err == nil {
			_, _, _, err = r.srv.eng.CreateIndex(ctx, hidden, nil, again)
		}
		if err != nil {
			return abandon(err)
		}
	}
	raws := make([]bson.Raw, len(docs))
	for i, d := range docs {
		raws[i] = value.Encode(engine.WithID(d))
	}
	var failed error
	if _, err := r.srv.eng.Insert(ctx, hidden, nil, raws, true, func(_ int, err error) {
		if err != nil {
			failed = err
		}
	}); err != nil || failed != nil {
		return abandon(firstError(err, failed))
	}
	if err := r.srv.eng.Rename(ctx, hidden, ns, existed); err != nil {
		return abandon(err)
	}
	return nil
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *request) merge(ctx context.Context, t *target, docs []bson.D) error {
	if !slices.Equal(t.on, []string{"_id"}) {
		info, _ := r.srv.eng.Lookup(t.ns)
		if !slices.ContainsFunc(info.Indexes, func(ix *engine.Index) bool { return ix.Unique && ix.Partial == nil && over(ix.Key, t.on) }) {
			return mongoerr.New(51183, "Cannot find index to verify that join fields will be unique")
		}
	}
	var first error // what comes after it is written anyway, as on a server
	for _, d := range docs {
		first = firstError(first, r.mergeOne(ctx, t, engine.WithID(d)))
	}
	return first
}

// over reports whether an index is on exactly these fields.
func over(key bson.D, fields []string) bool {
	for _, k := range key {
		if !slices.Contains(fields, k.Key) {
			return false
		}
	}
	return len(key) == len(fields)
}

func (r *request) mergeOne(ctx context.Context, t *target, d bson.D) error {
	filter := bson.D{}
	for _, path := range t.on {
		v, ok := value.Lookup(d, path)
		if _, isArray := v.(bson.A); !ok || v == nil || isArray {
			return mongoerr.New(51132, "$merge write error: 'on' field '%s' cannot be missing, null, undefined or an array", path)
		}
		filter = append(filter, bson.E{Key: path, Value: bson.D{{Key: "$eq", Value: v}}})
	}
	insert := func() error {
		var outcome error
		_, err := r.srv.eng.Insert(ctx, t.ns, nil, []bson.Raw{value.Encode(d)}, true, func(_ int, err error) { outcome = err })
		return firstError(err, outcome)
	}
	if t.matched == "fail" {
		return insert()
	}
	up, env, err := t.update(r, d)
	if err != nil {
		return err
	}
	m, err := query.Compile(filter, env)
	if err != nil {
		return err
	}
	compiled, err := query.CompileUpdate(up, env)
	if err != nil {
		return err
	}
	for {
		res, err := r.srv.eng.Update(ctx, t.ns, nil, engine.UpdateSpec{Selection: engine.Selection{Filter: filter, Matcher: m}, Update: compiled})
		if err != nil || res.Matched > 0 {
			return err
		}
		switch t.notMatched {
		case "discard":
			return nil
		case "fail":
			return mongoerr.New(13113, "$merge could not find a matching document in the target collection for at least one document in the source collection")
		}
		if err := insert(); !mongoerr.Is(err, mongoerr.DuplicateKey) || !r.meets(t.ns, m, filter) {
			return err
		}
	}
}

// meets reports whether a document with the filter exists now, because another writer was faster.
func (r *request) meets(ns engine.NS, m *query.Matcher, filter bson.D) bool {
	met := false
	err := r.srv.eng.Find(ns, engine.View{}, engine.Selection{Filter: filter, Matcher: m}, func(bson.Raw, bson.D, bool) bool { met = true; return false })
	return met && err == nil
}

// update returns what a document that matches d becomes.
func (t *target) update(r *request, d bson.D) (any, *query.Env, error) {
	env := *r.env
	env.Vars, env.Collation = bson.D{{Key: "new", Value: d}}, nil
	switch t.matched {
	case "replace":
		return d, &env, nil
	case "keepExisting":
		return bson.D{{Key: "$setOnInsert", Value: bson.D{{Key: "_id", Value: field(d, "_id")}}}}, &env, nil
	case "merge":
		return bson.A{bson.D{{Key: "$replaceWith", Value: bson.D{{Key: "$mergeObjects", Value: bson.A{"$$ROOT", "$$new"}}}}}}, &env, nil
	}
	if t.hasLet {
		vars := bson.D{}
		for _, v := range t.let {
			e, err := query.CompileExpr(v.Value)
			if err != nil {
				return nil, nil, err
			}
			got, err := e.Eval(d, &env)
			if err != nil {
				return nil, nil, err
			}
			vars = append(vars, bson.E{Key: v.Key, Value: got})
		}
		env.Vars = vars
	}
	return t.pipeline, &env, nil
}
