package mongo

import (
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/engine"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/mongoerr"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/query"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/value"
)

// maxViewDepth is how many views may stand on one another.
const maxViewDepth = 20

// source follows views down to a collection; the pipeline makes the view of its documents.
func (r *request) source(ns engine.NS) (engine.NS, bson.A, error) {
	var pipeline bson.A
	for range maxViewDepth {
		info, _ := r.srv.eng.Lookup(ns)
		if !info.View {
			return ns, pipeline, nil
		}
		on, _ := field(info.Options, "viewOn").(string)
		stages, _ := field(info.Options, "pipeline").(bson.A)
		ns.Coll, pipeline = on, append(append(bson.A{}, stages...), pipeline...)
	}
	return ns, nil, mongoerr.New(165, "View depth limit exceeded; maximum depth is %d", maxViewDepth)
}

// look calls yield with the documents of a selection, as the engine's Find does, including those of
// a view.
func (r *request) look(ns engine.NS, sel engine.Selection, yield func(raw bson.Raw, doc bson.D, sorted bool) bool) error {
	from, pipeline, err := r.source(ns)
	if err != nil {
		return err
	}
	var docs []bson.D
	switch {
	case r.srv.opts.Mongos != nil && ns.DB == "config":
		docs, _ = r.srv.configured(ns.Coll)
	case ns == replsetNS:
		docs = []bson.D{r.srv.configuration()}
	case ns.Coll == systemViews:
		for _, c := range r.srv.eng.Collections(ns.DB) {
			if c.View {
				docs = append(docs, append(bson.D{{Key: "_id", Value: c.NS.String()}}, c.Options...))
			}
		}
	case from == ns:
		return r.srv.eng.Find(ns, r.view, sel, yield)
	default:
		if docs, err = r.shown(from, pipeline); err != nil {
			return err
		}
	}
	for _, d := range docs {
		ok, err := sel.Matcher.Match(d)
		if err != nil {
			return err
		}
		if ok && !yield(value.Encode(d), d, false) {
			return nil
		}
	}
	return nil
}

// shown runs a view's pipeline over a collection.
func (r *request) shown(from engine.NS, pipeline bson.A) ([]bson.D, error) {
	stages, err := query.CompilePipeline(pipeline, r.env)
	if err != nil {
		return nil, err
	}
	docs, err := r.documents(from)
	if err != nil {
		return nil, err
	}
	return query.RunPipeline(stages, docs)
}

// documents returns all of a collection, decoded.
func (r *request) documents(ns engine.NS) ([]bson.D, error) {
	everything, err := query.Compile(bson.D{}, r.env)
	if err != nil {
		return nil, err
	}
	raws, err := r.collect(ns, engine.Selection{Matcher: everything}, 0, 0)
	if err != nil {
		return nil, err
	}
	docs := make([]bson.D, len(raws))
	for i, raw := range raws {
		if docs[i], err = value.Decode(raw); err != nil {
			return nil, err
		}
	}
	return docs, nil
}

// viewOptions returns the options of the view that the command create makes; nil: it makes a
// collection.
func (r *request) viewOptions(ns engine.NS) (bson.D, error) {
	if !r.has("viewOn") {
		if r.has("pipeline") {
			return nil, mongoerr.New(mongoerr.InvalidOptions, "'pipeline' requires 'viewOn' to also be specified")
		}
		return nil, nil
	}
	on, pipeline, err := r.definition(ns, "", bson.A{})
	if err != nil {
		return nil, err
	}
	return bson.D{{Key: "viewOn", Value: on}, {Key: "pipeline", Value: pipeline}}, nil
}

// definition returns the collection and the pipeline that the command gives a view; what it leaves
// out is as given.
func (r *request) definition(ns engine.NS, on string, pipeline bson.A) (string, bson.A, error) {
	if v := r.get("viewOn"); r.has("viewOn") {
		text, ok := v.(string)
		if !ok {
			return "", nil, mongoerr.New(mongoerr.TypeMismatch, "BSON field '%s.viewOn' is the wrong type '%s', expected type 'string'", r.name, query.TypeName(v))
		}
		if on = text; on == "" {
			return "", nil, mongoerr.New(mongoerr.BadValue, "'viewOn' cannot be empty")
		}
	}
	if v := r.get("pipeline"); r.has("pipeline") {
		stages, ok := v.(bson.A)
		if !ok {
			return "", nil, mongoerr.New(mongoerr.TypeMismatch, "BSON field '%s.pipeline' is the wrong type '%s', expected type 'array'", r.name, query.TypeName(v))
		}
		pipeline = stages
	}
	for i, v := range pipeline {
		stage, ok := v.(bson.D)
		if !ok {
			return "", nil, mongoerr.New(mongoerr.TypeMismatch, "BSON field '%s.pipeline.%d' is the wrong type '%s', expected type 'object'", r.name, i, query.TypeName(v))
		}
		if len(stage) == 0 {
			continue
		}
		switch name := stage[0].Key; name {
		case "$out", "$merge":
			return "", nil, mongoerr.New(mongoerr.OptionNotSupportedOnView, "Invalid pipeline for view %s :: caused by :: The aggregation stage %s in location %d of the pipeline "+
				"cannot be used in the view definition of %s because it writes to disk", ns, name, i, ns)
		case "$changeStream", "$documents":
			return "", nil, mongoerr.New(mongoerr.OptionNotSupportedOnView, "Invalid pipeline for view %s :: caused by :: %s cannot be used in a view definition", ns, name)
		}
	}
	if _, err := query.CompilePipeline(pipeline, r.env); err != nil {
		return "", nil, err
	}
	path := []string{ns.String(), ns.String()}
	for at := (engine.NS{DB: ns.DB, Coll: on}); len(path) <= maxViewDepth+1; {
		path = append(path, at.String())
		if at == ns {
			return "", nil, mongoerr.New(mongoerr.GraphContainsCycle, "View cycle detected: %s", strings.Join(path, " => "))
		}
		info, _ := r.srv.eng.Lookup(at)
		if !info.View {
			break
		}
		at.Coll, _ = field(info.Options, "viewOn").(string)
	}
	return on, pipeline, nil
}

// modifyView returns the options that the command collMod changes of a view.
func (r *request) modifyView(ns engine.NS, now bson.D) (bson.D, error) {
	for _, key := range []string{"validator", "validationLevel", "validationAction", "changeStreamPreAndPostImages"} {
		if r.has(key) {
			return nil, mongoerr.New(mongoerr.InvalidOptions, "option not supported on a view: %s", key)
		}
	}
	on, _ := field(now, "viewOn").(string)
	pipeline, _ := field(now, "pipeline").(bson.A)
	on, pipeline, err := r.definition(ns, on, pipeline)
	if err != nil {
		return nil, err
	}
	return bson.D{{Key: "viewOn", Value: on}, {Key: "pipeline", Value: pipeline}}, nil
}

func first(a bson.A) any {
	if len(a) == 0 {
		return nil
	}
	return a[0]
}

// order is how a find goes through a collection.
type order struct {
	sort      any
	backwards bool
}

// natural reads the order, which {$natural: -1} in a sort or a hint turns around.
func (r *request) natural() (order, error) {
	for _, key := range []string{"sort", "hint"} {
		d, ok := r.get(key).(bson.D)
		if !ok || len(d) == 0 || d[0].Key != "$natural" {
			continue
		}
		n, isInt := value.AsInt(d[0].Value)
		if len(d) > 1 || !isInt || (n != 1 && n != -1) {
			return order{}, mongoerr.New(mongoerr.BadValue, "$natural sort cannot be set to a value other than -1 or 1, nor beside others")
		}
		if key == "sort" {
			return order{backwards: n < 0}, nil
		}
		if sort, _ := r.get("sort").(bson.D); len(sort) == 0 {
			return order{backwards: n < 0}, nil
		}
	}
	return order{sort: r.get("sort")}, nil
}
