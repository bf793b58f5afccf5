package mongo

import (
	"context"
	"slices"
	"sort"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/engine"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/keystring"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/mongoerr"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/query"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/value"
)

func runFind(_ context.Context, r *request) (bson.D, error) {
	ns, err := r.ns()
	if err != nil {
		return nil, err
	}
	if err := r.refuse("oplogReplay", "returnKey", "showRecordId", "max"); err != nil {
		return nil, err
	}
	if r.flag("tailable") {
		return r.openTail(ns)
	}
	natural, err := r.natural()
	if err != nil {
		return nil, err
	}
	if err := r.hint(ns, r.get("hint")); err != nil {
		return nil, err
	}
	bound, err := r.minimum(ns)
	if err != nil {
		return nil, err
	}
	if bound != nil && natural.sort == nil {
		natural.sort = bound.index
	}
	filter, err := r.doc("filter")
	if err != nil {
		return nil, err
	}
	var sel engine.Selection
	if ns != oplogNS {
		if sel, err = r.selection(filter, natural.sort); err != nil {
			return nil, err
		}
	}
	fields, err := r.doc("projection")
	if err != nil {
		return nil, err
	}
	projection, err := query.CompileFindProjection(fields, filter, r.env)
	if err != nil {
		return nil, err
	}
	skip, err := r.int("skip", 0)
	if err != nil {
		return nil, err
	}
	limit, err := r.int("limit", 0)
	if err != nil {
		return nil, err
	}
	if limit < 0 || skip < 0 {
		code := int32(51024)
		if r.srv.opts.before(5, 0) {
			code = mongoerr.BadValue
		}
		return nil, mongoerr.New(code, "limit and skip must not be negative")
	}
	var docs []bson.Raw
	if ns == oplogNS && !r.srv.opts.DocumentDB {
		docs, err = r.findOplog(filter, limit)
	} else if natural.backwards {
		docs, err = r.collect(ns, sel, 0, 0)
		slices.Reverse(docs)
		docs = page(docs, skip, limit)
	} else if bound != nil {
		if docs, err = r.collect(ns, sel, 0, 0); err == nil {
			docs, err = bound.read(docs)
		}
		docs = page(docs, skip, limit)
	} else {
		docs, err = r.collect(ns, sel, skip, limit)
	}
	if err != nil {
		return nil, err
	}
	if projection != nil {
		for i, raw := range docs {
			d, err := value.Decode(raw)
			if err != nil {
				return nil, err
			}
			if d, err = projection.Apply(d); err != nil {
				return nil, err
			}
			docs[i] = value.Encode(d)
		}
	}
	opts := bson.D{}
	if v, ok := value.Get(r.body, "batchSize"); ok {
		opts = append(opts, bson.E{Key: "batchSize", Value: v})
	}
	if r.flag("singleBatch") {
		opts = append(opts, bson.E{Key: "single", Value: true})
	}
	return r.openCursor(ns.String(), docs, opts)
}

// page returns the documents after skip, at most limit (0: all).
func page(docs []bson.Raw, skip, limit int64) []bson.Raw {
	docs = docs[min(skip, int64(len(docs))):]
	if limit > 0 {
		docs = docs[:min(limit, int64(len(docs)))]
	}
	return docs
}

// collect gives the documents of a selection in order, after skip, at most limit (0: all).
func (r *request) collect(ns engine.NS, sel engine.Selection, skip, limit int64) ([]bson.Raw, error) {
	var docs []bson.Raw
	type sorted struct {
		raw bson.Raw
		doc bson.D
	}
	var all []sorted // what still has to be sorted
	passed := int64(0)
	err := r.look(ns, sel, func(raw bson.Raw, doc bson.D, ready bool) bool {
		if sel.Sort != nil && !ready {
			all = append(all, sorted{raw, doc})
			return true
		}
		if passed++; passed <= skip {
			return true
		}
		docs = append(docs, raw)
		return limit == 0 || int64(len(docs)) < limit
	})
	if len(all) == 0 {
		return docs, err
	}
	for i := range all {
		if all[i].doc == nil && err == nil {
			all[i].doc, err = value.Decode(all[i].raw)
		}
	}
	if err != nil {
		return nil, err
	}
	sort.SliceStable(all, func(i, j int) bool { return sel.Sort.Compare(all[i].doc, all[j].doc) < 0 })
	all = all[min(skip, int64(len(all))):]
	if limit > 0 {
		all = all[:min(limit, int64(len(all)))]
	}
	for _, s := range all {
		docs = append(docs, s.raw)
	}
	return docs, nil
}

func runCount(_ context.Context, r *request) (bson.D, error) {
	ns, err := r.ns()
	if err != nil {
		return nil, err
	}
	if err := r.hint(ns, r.get("hint")); err != nil {
		return nil, err
	}
	filter, err := r.doc("query")
	if err != nil {
		return nil, err
	}
	skip, err := r.int("skip", 0)
	if err != nil {
		return nil, err
	}
	limit, err := r.int("limit", 0)
	if err != nil {
		return nil, err
	}
	if info, _ := r.srv.eng.Lookup(ns); len(filter) == 0 && skip == 0 && limit == 0 && !info.View {
		return bson.D{{Key: "n", Value: int32(info.Count)}}, nil
	}
	sel, err := r.selection(filter, nil)
	if err != nil {
		return nil, err
	}
	docs, err := r.collect(ns, sel, skip, max(limit, -limit))
	return bson.D{{Key: "n", Value: int32(len(docs))}}, err
}

func runDistinct(_ context.Context, r *request) (bson.D, error) {
	ns, err := r.ns()
	if err != nil {
		return nil, err
	}
	key, ok := r.get("key").(string)
	if !ok {
		return nil, mongoerr.New(mongoerr.TypeMismatch, "BSON field 'distinct.key' must be a string")
	}
	if err := r.hint(ns, r.get("hint")); err != nil {
		return nil, err
	}
	filter, err := r.doc("query")
	if err != nil {
		return nil, err
	}
	sel, err := r.selection(filter, nil)
	if err != nil {
		return nil, err
	}
	docs, err := r.collect(ns, sel, 0, 0)
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	values := bson.A{}
	note := func(v any) {
		if _, missing := v.(value.Missing); missing {
			return
		}
		if k := keystring.Of(r.env.Collation.Key(v)); !seen[k] {
			seen[k] = true
			values = append(values, v)
		}
	}
	for _, raw := range docs {
		d, err := value.Decode(raw)
		if err != nil {
			return nil, err
		}
		value.Walk(d, value.Split(key), func(v any, _ bool) bool {
			if list, isArray := v.(bson.A); isArray {
				for _, e := range list {
					note(e)
				}
			} else {
				note(v)
			}
			return false
		})
	}
	slices.SortStableFunc(values, func(a, b any) int { return value.Compare(r.env.Collation.Key(a), r.env.Collation.Key(b)) })
	reply := bson.D{{Key: "values", Value: values}}
	if !r.view.At.IsZero() {
		reply = append(reply, bson.E{Key: "atClusterTime", Value: r.view.At})
	}
	return reply, nil
}

func runAggregate(ctx context.Context, r *request) (bson.D, error) {
	if err := r.refuse("explain"); err != nil {
		return nil, err
	}
	stages, ok := r.get("pipeline").(bson.A)
	if !ok {
		return nil, mongoerr.New(mongoerr.TypeMismatch, "'pipeline' option must be specified as an array")
	}
	opts, ok := r.get("cursor").(bson.D)
	if !ok {
		return nil, mongoerr.New(mongoerr.FailedToParse, "The 'cursor' option is required, except for aggregate with the explain argument")
	}
	if len(stages) > 0 {
		if d, _ := stages[0].(bson.D); len(d) == 1 && d[0].Key == "$changeStream" {
			r.stream = true
			return r.openStream(ctx, d[0].Value, stages[1:], opts)
		} else if len(d) == 1 && d[0].Key == "$currentOp" {
			ops, err := r.currentOp(d[0].Value)
			if err != nil {
				return nil, err
			}
			stages = append(bson.A{bson.D{{Key: "$documents", Value: ops}}}, stages[1:]...)
		}
	}
	ns, err := r.ns()
	if n, isNumber := value.AsInt(r.body[0].Value); isNumber && n == 1 {
		if d, _ := first(stages).(bson.D); len(d) != 1 || d[0].Key != "$documents" {
			return nil, mongoerr.Unsupported("aggregate on a database, other than $changeStream and $documents")
		}
		ns, err = engine.NS{DB: r.db, Coll: "$cmd.aggregate"}, nil
	}
	if err != nil {
		return nil, err
	}
	if d, _ := first(stages).(bson.D); len(d) == 1 && d[0].Key == "$collStats" {
		stages, err = r.statistics(ns, d[0].Value, stages[1:])
	}
	if err != nil {
		return nil, err
	}
	target, stages, err := r.target(stages)
	if err != nil {
		return nil, err
	}
	pipeline, err := query.CompilePipeline(stages, r.env)
	if err != nil {
		return nil, err
	}
	if err := r.hint(ns, r.get("hint")); err != nil {
		return nil, err
	}
	// A leading $match chooses by index like a find.
	filter := bson.D{}
	if len(pipeline) > 0 && pipeline[0].Name == "$match" {
		filter = stages[0].(bson.D)[0].Value.(bson.D)
		pipeline = pipeline[1:]
	}
	sel, err := r.selection(filter, nil)
	if err != nil {
		return nil, err
	}
	raws, err := r.collect(ns, sel, 0, 0)
	if err != nil {
		return nil, err
	}
	docs := make([]bson.D, len(raws))
	for i, raw := range raws {
		if docs[i], err = value.Decode(raw); err != nil {
			return nil, err
		}
	}
	if docs, err = query.RunPipeline(pipeline, docs); err != nil {
		return nil, err
	}
	if target != nil {
		return r.writeOut(ctx, target, docs, ns, opts)
	}
	raws = make([]bson.Raw, len(docs))
	for i, d := range docs {
		if raws[i] = value.Encode(d); len(raws[i]) > value.MaxDocument {
			return nil, mongoerr.New(mongoerr.BSONObjectTooLarge, "an aggregation result of %d bytes is too large", len(raws[i]))
		}
	}
	return r.openCursor(ns.String(), raws, opts)
}
