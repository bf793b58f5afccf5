package query

import (
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/keystring"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/mongoerr"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/value"
)

// read gives another collection's documents.
func (e *Env) read(stage, name string) ([]bson.D, error) {
	if e == nil || e.Collection == nil {
		return nil, mongoerr.Unsupported("the stage %s here", stage)
	}
	return e.Collection(name)
}

// reached returns the values by which a path joins: each element of an array, null where there is
// nothing.
func (e *Env) reached(d bson.D, path []string) (keys []string) {
	add := func(v any) {
		if nullish(v) {
			v = nil
		}
		if k := keystring.Of(e.key(v)); !slices.Contains(keys, k) {
			keys = append(keys, k)
		}
	}
	value.Walk(d, path, func(v any, _ bool) bool {
		items, isArray := v.(bson.A)
		if !isArray {
			add(v)
			return false
		}
		for _, item := range items {
			add(item)
		}
		return false
	})
	return keys
}

// joined finds documents by the values of a path.
type joined map[string][]int

func (e *Env) join(docs []bson.D, path string) joined {
	j := joined{}
	for i, d := range docs {
		for _, k := range e.reached(d, value.Split(path)) {
			j[k] = append(j[k], i)
		}
	}
	return j
}

// of returns the documents that have one of the values, in their order.
func (j joined) of(docs []bson.D, keys []string) []bson.D {
	var places []int
	for _, k := range keys {
		places = append(places, j[k]...)
	}
	slices.Sort(places)
	var out []bson.D
	for _, i := range slices.Compact(places) {
		out = append(out, docs[i])
	}
	return out
}

type lookup struct {
	from, as              string
	local, foreign        string
	let                   bson.D
	source, pipeline      bson.A // source is a $documents that the fields join
	hasLocal, hasPipeline bool
}

func compileLookup(arg any, env *Env) (Stage, error) {
	d, ok := arg.(bson.D)
	if !ok {
		return Stage{}, mongoerr.New(mongoerr.FailedToParse, "the $lookup specification must be an Object")
	}
	l := lookup{}
	for _, e := range d {
		var isRight bool
		switch e.Key {
		case "from":
			if _, remote := e.Value.(bson.D); remote {
				return Stage{}, mongoerr.Unsupported("$lookup from another database")
			}
			l.from, isRight = e.Value.(string)
		case "as":
			l.as, isRight = e.Value.(string)
		case "localField":
			l.local, isRight = e.Value.(string)
			l.hasLocal = true
		case "foreignField":
			l.foreign, isRight = e.Value.(string)
		case "let":
			l.let, isRight = e.Value.(bson.D)
		case "pipeline":
			l.pipeline, isRight = e.Value.(bson.A)
			l.hasPipeline = true
		default:
			return Stage{}, mongoerr.New(mongoerr.FailedToParse, "unknown argument to $lookup: %s", e.Key)
		}
		if !isRight {
			return Stage{}, mongoerr.New(mongoerr.FailedToParse, "$lookup argument '%s' is of the wrong type %s", e.Key, TypeName(e.Value))
		}
	}
	if l.as == "" || (l.hasLocal != (l.foreign != "")) || (!l.hasLocal && !l.hasPipeline) || (l.from == "" && !l.hasPipeline) {
		return Stage{}, mongoerr.New(mongoerr.FailedToParse, "$lookup requires 'as', and 'from' with both or neither of 'localField' and 'foreignField', or a 'pipeline'")
	}
	lets := make([]*Expr, len(l.let))
	for i, v := range l.let {
		var err error
		if lets[i], err = CompileExpr(v.Value); err != nil {
			return Stage{}, err
		}
	}
	if l.hasLocal && l.from == "" { // the fields join what $documents gives
		if d := asDocument(first(l.pipeline)); len(d) != 1 || d[0].Key != "$documents" {
			return Stage{}, mongoerr.New(mongoerr.FailedToParse, "must specify 'pipeline' when 'from' is empty, and $documents as its first stage")
		}
		l.source, l.pipeline = l.pipeline[:1], l.pipeline[1:]
	}
	if _, err := CompilePipeline(slices.Concat(l.source, l.pipeline), env); err != nil {
		return Stage{}, err
	}
	return Stage{All: func(docs []bson.D) ([]bson.D, error) { return l.run(docs, lets, env) }}, nil
}

func (l *lookup) run(docs []bson.D, lets []*Expr, env *Env) ([]bson.D, error) {
	var others []bson.D
	var err error
	if l.from != "" {
		if others, err = env.read("$lookup", l.from); err != nil {
			return nil, err
		}
	}
	if len(l.source) > 0 {
		stages, err := CompilePipeline(l.source, env)
		if err != nil {
			return nil, err
		}
		if others, err = RunPipeline(stages, nil); err != nil {
			return nil, err
		}
	}
	var index joined
	if l.hasLocal {
		index = env.join(others, l.foreign)
	}
	out := make([]bson.D, 0, len(docs))
	for _, d := range docs {
		if err := env.interrupted(); err != nil {
			return nil, err
		}
		found := others
		if l.hasLocal {
			found = index.of(others, env.reached(d, value.Split(l.local)))
		}
		if l.hasPipeline {
			vars := make(bson.D, len(lets))
			for i, e := range lets {
				v, err := e.Eval(d, env)
				if err != nil {
					return nil, err
				}
				vars[i] = bson.E{Key: l.let[i].Key, Value: v}
			}
			stages, err := CompilePipeline(l.pipeline, env.with(vars))
			if err != nil {
				return nil, err
			}
			if found, err = RunPipeline(stages, slices.Clone(found)); err != nil {
				return nil, err
			}
		}
		e := editor{doc: value.CloneDoc(d)}
		if err := e.set(value.Split(l.as), list(found)); err != nil {
			return nil, err
		}
		out = append(out, e.doc)
	}
	return out, nil
}

func first(list bson.A) any {
	if len(list) == 0 {
		return nil
	}
	return list[0]
}

func compileGraphLookup(arg any, env *Env) (Stage, error) {
	d, _ := arg.(bson.D)
	text := func(key string) string { s, _ := field(d, key).(string); return s }
	from, connectFrom, connectTo, as, depthField := text("from"), text("connectFromField"), text("connectToField"), text("as"), text("depthField")
	start, hasStart := value.Get(d, "startWith")
	if from == "" || connectFrom == "" || connectTo == "" || as == "" || !hasStart {
		return Stage{}, mongoerr.New(40105, "$graphLookup requires 'from', 'as', 'startWith', 'connectFromField', and 'connectToField' to be specified.")
	}
	if err := known("$graphLookup", d, "from", "startWith", "connectFromField", "connectToField", "as", "depthField", "maxDepth", "restrictSearchWithMatch"); err != nil {
		return Stage{}, err
	}
	deepest := int64(-1)
	if v, has := value.Get(d, "maxDepth"); has {
		var ok bool
		if deepest, ok = value.AsInt(v); !ok || deepest < 0 {
			return Stage{}, mongoerr.New(40100, "maxDepth requires a whole number that is not negative")
		}
	}
	e, err := CompileExpr(start)
	if err != nil {
		return Stage{}, err
	}
	restrict, _ := field(d, "restrictSearchWithMatch").(bson.D)
	m, err := Compile(restrict, env)
	if err != nil {
		return Stage{}, err
	}
	return Stage{All: func(docs []bson.D) ([]bson.D, error) {
		all, err := env.read("$graphLookup", from)
		if err != nil {
			return nil, err
		}
		var others []bson.D
		for _, o := range all {
			ok, err := m.Match(o)
			if err != nil {
				return nil, err
			}
			if ok {
				others = append(others, o)
			}
		}
		index := env.join(others, connectTo)
		out := make([]bson.D, 0, len(docs))
		for _, doc := range docs {
			if err := env.interrupted(); err != nil {
				return nil, err
			}
			first, err := e.Eval(doc, env)
			if err != nil {
				return nil, err
			}
			keys := env.reached(bson.D{{Key: "v", Value: first}}, []string{"v"})
			found := bson.A{}
			seen := map[int]bool{}
			for depth := int64(0); len(keys) > 0 && (deepest < 0 || depth <= deepest); depth++ {
				var next []string
				for _, k := range keys {
					for _, i := range index[k] {
						if seen[i] {
							continue
						}
						seen[i] = true
						hit := value.CloneDoc(others[i])
						if depthField != "" {
							hit = value.Set(hit, depthField, depth)
						}
						found = append(found, hit)
						next = append(next, env.reached(others[i], value.Split(connectFrom))...)
					}
				}
				keys = next
			}
			ed := editor{doc: value.CloneDoc(doc)}
			if err := ed.set(value.Split(as), found); err != nil {
				return nil, err
			}
			out = append(out, ed.doc)
		}
		return out, nil
	}}, nil
}

func compileUnionWith(arg any, env *Env) (Stage, error) {
	name, ok := arg.(string)
	var stages []Stage
	if d, isDoc := arg.(bson.D); isDoc {
		name, ok = field(d, "coll").(string)
		pipeline, _ := field(d, "pipeline").(bson.A)
		ok = ok || len(pipeline) > 0
		if err := known("$unionWith", d, "coll", "pipeline"); err != nil {
			return Stage{}, err
		}
		var err error
		if stages, err = CompilePipeline(pipeline, env); err != nil {
			return Stage{}, err
		}
	}
	if !ok {
		return Stage{}, mongoerr.New(mongoerr.FailedToParse, "the $unionWith stage specification must be an object or string")
	}
	return Stage{All: func(docs []bson.D) ([]bson.D, error) {
		var others []bson.D
		if name != "" {
			var err error
			if others, err = env.read("$unionWith", name); err != nil {
				return nil, err
			}
		}
		others, err := RunPipeline(stages, others)
		return append(slices.Clip(docs), others...), err
	}}, nil
}
