package query

import (
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/mongoerr"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/value"
)

// moreStages are the stages that read more than one document at a time, or more than one
// collection.
var moreStages = map[string]func(arg any, env *Env) (Stage, error){}

func init() {
	moreStages["$sortByCount"] = compileSortByCount
	moreStages["$bucket"] = compileBucket
	moreStages["$bucketAuto"] = compileBucketAuto
	moreStages["$facet"] = compileFacet
	moreStages["$redact"] = compileRedact
	moreStages["$lookup"] = compileLookup
	moreStages["$graphLookup"] = compileGraphLookup
	moreStages["$unionWith"] = compileUnionWith
	moreStages["$documents"] = compileDocuments
}

// sequence makes one stage of many.
func sequence(stages []Stage) Stage {
	return Stage{All: func(docs []bson.D) ([]bson.D, error) { return RunPipeline(stages, docs) }}
}

func compileSortByCount(arg any, env *Env) (Stage, error) {
	stages, err := CompilePipeline(bson.A{
		bson.D{{Key: "$group", Value: bson.D{{Key: "_id", Value: arg}, {Key: "count", Value: bson.D{{Key: "$sum", Value: int32(1)}}}}}},
		bson.D{{Key: "$sort", Value: bson.D{{Key: "count", Value: int32(-1)}}}},
	}, env)
	return sequence(stages), err
}

// output reads what $bucket and $bucketAuto compute of each bucket: its count by default.
func output(d bson.D) (bson.D, error) {
	v, ok := value.Get(d, "output")
	if !ok {
		return bson.D{{Key: "count", Value: bson.D{{Key: "$sum", Value: int32(1)}}}}, nil
	}
	out, ok := v.(bson.D)
	if !ok {
		return nil, mongoerr.New(40196, "The 'output' field must be an object, but found type: %s", TypeName(v))
	}
	return out, nil
}

func known(stage string, d bson.D, keys ...string) error {
	for _, e := range d {
		if !slices.Contains(keys, e.Key) {
			return mongoerr.New(40197, "Unrecognized option to %s: %s.", stage, e.Key)
		}
	}
	return nil
}

func compileBucket(arg any, env *Env) (Stage, error) {
	d, _ := arg.(bson.D)
	by, hasBy := value.Get(d, "groupBy")
	list, _ := value.Get(d, "boundaries")
	boundaries, ok := list.(bson.A)
	if !hasBy || !ok {
		return Stage{}, mongoerr.New(40198, "$bucket requires 'groupBy' and 'boundaries' to be specified.")
	}
	if err := known("$bucket", d, "groupBy", "boundaries", "default", "output"); err != nil {
		return Stage{}, err
	}
	if len(boundaries) < 2 {
		return Stage{}, mongoerr.New(40192, "The $bucket 'boundaries' field must have at least 2 values, but found %d value(s).", len(boundaries))
	}
	for i := 1; i < len(boundaries); i++ {
		if value.Class(boundaries[i]) != value.Class(boundaries[i-1]) {
			return Stage{}, mongoerr.New(40193, "All values in the the 'boundaries' option to $bucket must have the same type.")
		}
		if value.Compare(env.key(boundaries[i-1]), env.key(boundaries[i])) >= 0 {
			return Stage{}, mongoerr.New(40194, "The 'boundaries' option to $bucket must be sorted, but elements %d and %d are not in ascending order", i-1, i)
		}
	}
	e, err := CompileExpr(by)
	if err != nil {
		return Stage{}, err
	}
	fallback, hasDefault := value.Get(d, "default")
	if hasDefault && value.Compare(fallback, boundaries[0]) >= 0 && value.Compare(fallback, boundaries[len(boundaries)-1]) < 0 {
		return Stage{}, mongoerr.New(40199, "The $bucket 'default' field must be less than the lowest boundary or greater than or equal to the highest boundary.")
	}
	out, err := output(d)
	if err != nil {
		return Stage{}, err
	}
	id := &Expr{func(s *scope) (any, error) {
		v, err := e.eval(s)
		if err != nil {
			return nil, err
		}
		for i := len(boundaries) - 2; i >= 0; i-- {
			if value.Compare(env.key(v), env.key(boundaries[i])) >= 0 && value.Compare(env.key(v), env.key(boundaries[len(boundaries)-1])) < 0 {
				return boundaries[i], nil
			}
		}
		if !hasDefault {
			return nil, mongoerr.New(40066, "$switch could not find a matching branch for an input, and no default was specified.")
		}
		return fallback, nil
	}}
	return grouped(id, out, env)
}

// grouped groups by an expression and sorts by what it gave.
func grouped(id *Expr, out bson.D, env *Env) (Stage, error) {
	accs, err := compileAccumulators(out)
	if err != nil {
		return Stage{}, err
	}
	return Stage{All: func(docs []bson.D) ([]bson.D, error) {
		docs, err := runGroup(docs, id, accs, env)
		slices.SortStableFunc(docs, func(a, b bson.D) int { return value.Compare(env.key(a[0].Value), env.key(b[0].Value)) })
		return docs, err
	}}, nil
}

func compileBucketAuto(arg any, env *Env) (Stage, error) {
	d, _ := arg.(bson.D)
	by, hasBy := value.Get(d, "groupBy")
	n, ok := value.AsInt(field(d, "buckets"))
	if !hasBy || !ok || n < 1 {
		return Stage{}, mongoerr.New(40246, "$bucketAuto requires 'groupBy' and a positive number of 'buckets' to be specified.")
	}
	if _, has := value.Get(d, "granularity"); has {
		return Stage{}, mongoerr.Unsupported("the granularity of $bucketAuto")
	}
	if err := known("$bucketAuto", d, "groupBy", "buckets", "output"); err != nil {
		return Stage{}, err
	}
	e, err := CompileExpr(by)
	if err != nil {
		return Stage{}, err
	}
	out, err := output(d)
	if err != nil {
		return Stage{}, err
	}
	accs, err := compileAccumulators(out)
	if err != nil {
		return Stage{}, err
	}
	return Stage{All: func(docs []bson.D) ([]bson.D, error) { return runBucketAuto(docs, e, int(n), accs, env) }}, nil
}

// runBucketAuto fills buckets of about the same size, none of which divides equal values.
func runBucketAuto(docs []bson.D, by *Expr, n int, accs []accumulator, env *Env) ([]bson.D, error) {
	type keyed struct {
		key any
		doc bson.D
	}
	all := make([]keyed, len(docs))
	for i, d := range docs {
		v, err := by.Eval(d, env)
		if err != nil {
			return nil, err
		}
		if _, missing := v.(value.Missing); missing {
			v = nil
		}
		all[i] = keyed{v, d}
	}
	slices.SortStableFunc(all, func(a, b keyed) int { return value.Compare(env.key(a.key), env.key(b.key)) })
	size := max((len(all)+n/2)/n, 1)
	var out []bson.D
	for start := 0; start < len(all); {
		end := min(start+size, len(all))
		if len(out) == n-1 {
			end = len(all)
		}
		for end < len(all) && value.Equal(env.key(all[end].key), env.key(all[end-1].key)) {
			end++
		}
		least, greatest := all[start].key, all[end-1].key
		if end < len(all) {
			greatest = all[end].key
		}
		id := bson.D{{Key: "min", Value: least}, {Key: "max", Value: greatest}}
		var in []bson.D
		for _, k := range all[start:end] {
			in = append(in, k.doc)
		}
		bucket, err := runGroup(in, constant(id), accs, env)
		if err != nil {
			return nil, err
		}
		out, start = append(out, bucket...), end
	}
	return out, nil
}

func compileFacet(arg any, env *Env) (Stage, error) {
	d, ok := arg.(bson.D)
	if !ok || len(d) == 0 {
		return Stage{}, mongoerr.New(40169, "the $facet specification must be a non-empty object")
	}
	facets := make([][]Stage, len(d))
	for i, f := range d {
		list, ok := f.Value.(bson.A)
		if !ok {
			return Stage{}, mongoerr.New(40170, "arguments to $facet must be arrays, %s is type %s", f.Key, TypeName(f.Value))
		}
		for _, s := range list {
			if d := asDocument(s); len(d) > 0 && slices.Contains([]string{"$out", "$merge", "$changeStream", "$collStats", "$geoNear", "$indexStats"}, d[0].Key) {
				return Stage{}, mongoerr.New(40600, "%s is not allowed to be used within a $facet stage", d[0].Key)
			}
		}
		var err error
		if facets[i], err = CompilePipeline(list, env); err != nil {
			return Stage{}, err
		}
		if slices.ContainsFunc(facets[i], func(s Stage) bool { return s.Name == "$facet" }) {
			return Stage{}, mongoerr.New(40600, "$facet is not allowed to be used within a $facet stage")
		}
	}
	return Stage{All: func(docs []bson.D) ([]bson.D, error) {
		out := bson.D{}
		for i, f := range d {
			got, err := RunPipeline(facets[i], slices.Clone(docs))
			if err != nil {
				return nil, err
			}
			out = append(out, bson.E{Key: f.Key, Value: list(got)})
		}
		return []bson.D{out}, nil
	}}, nil
}

func list(docs []bson.D) bson.A {
	out := make(bson.A, len(docs))
	for i, d := range docs {
		out[i] = d
	}
	return out
}

// asDocument returns v if it is a document, else an empty one.
func asDocument(v any) bson.D { d, _ := v.(bson.D); return d }

// field reads a field that may not be there.
func field(d bson.D, key string) any {
	v, _ := value.Get(d, key)
	return v
}

// compileRedact evaluates its expression for a document and, if the result is $$DESCEND, for those
// within.
func compileRedact(arg any, env *Env) (Stage, error) {
	e, err := CompileExpr(arg)
	if err != nil {
		return Stage{}, err
	}
	var redact func(d bson.D) (bson.D, bool, error)
	var within func(v any) (any, bool, error)
	within = func(v any) (any, bool, error) {
		switch t := v.(type) {
		case bson.D:
			return redact(t)
		case bson.A:
			out := bson.A{}
			for _, item := range t {
				got, keep, err := within(item)
				if err != nil {
					return nil, false, err
				}
				if keep {
					out = append(out, got)
				}
			}
			return out, true, nil
		}
		return v, true, nil
	}
	redact = func(d bson.D) (bson.D, bool, error) {
		v, err := e.Eval(d, env.with(bson.D{{Key: "KEEP", Value: "keep"}, {Key: "PRUNE", Value: "prune"}, {Key: "DESCEND", Value: "descend"}}))
		if err != nil {
			return nil, false, err
		}
		switch v {
		case "keep":
			return d, true, nil
		case "prune":
			return nil, false, nil
		case "descend":
		default:
			return nil, false, mongoerr.New(17053, "$redact's expression should not return anything aside from the variables $$KEEP, $$DESCEND, and $$PRUNE, but returned %v", v)
		}
		out := bson.D{}
		for _, f := range d {
			got, keep, err := within(f.Value)
			if err != nil {
				return nil, false, err
			}
			if keep {
				out = append(out, bson.E{Key: f.Key, Value: got})
			}
		}
		return out, true, nil
	}
	return Stage{Each: redact}, nil
}

// compileDocuments returns a source: nothing comes before it.
func compileDocuments(arg any, env *Env) (Stage, error) {
	e, err := CompileExpr(arg)
	if err != nil {
		return Stage{}, err
	}
	return Stage{All: func([]bson.D) ([]bson.D, error) {
		v, err := e.Eval(value.Missing{}, env)
		if err != nil {
			return nil, err
		}
		items, ok := v.(bson.A)
		if !ok {
			return nil, mongoerr.New(5858203, "an array is expected")
		}
		var out []bson.D
		for _, item := range items {
			d, ok := item.(bson.D)
			if !ok {
				return nil, mongoerr.New(40228, "$documents must be an array of objects, found %s", TypeName(item))
			}
			out = append(out, d)
		}
		return out, nil
	}}, nil
}
