package query

import (
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/mongoerr"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/value"
)

// Stage is one compiled aggregation stage. Exactly one of Each and All is set.
type Stage struct {
	Name string
	Each func(d bson.D) (out bson.D, keep bool, err error) // works document by document
	All  func(docs []bson.D) ([]bson.D, error)             // needs the whole input
	env  *Env
}

// CompilePipeline reads an array of stages.
func CompilePipeline(a bson.A, env *Env) ([]Stage, error) {
	out := make([]Stage, 0, len(a))
	for _, item := range a {
		d, ok := item.(bson.D)
		if !ok || len(d) != 1 {
			return nil, mongoerr.New(40323, "A pipeline stage specification object must contain exactly one field.")
		}
		s, err := compileStage(d[0].Key, d[0].Value, env)
		if err != nil {
			return nil, err
		}
		s.Name, s.env = d[0].Key, env
		out = append(out, s)
	}
	return out, nil
}

// RunPipeline passes documents through all stages.
func RunPipeline(stages []Stage, docs []bson.D) ([]bson.D, error) {
	for _, s := range stages {
		if err := s.env.interrupted(); err != nil {
			return nil, err
		}
		if s.All != nil {
			var err error
			if docs, err = s.All(docs); err != nil {
				return nil, err
			}
			continue
		}
		out := make([]bson.D, 0, len(docs))
		for _, d := range docs {
			if err := s.env.interrupted(); err != nil {
				return nil, err
			}
			got, keep, err := s.Each(d)
			if err != nil {
				return nil, err
			}
			if keep {
				out = append(out, got)
			}
		}
		docs = out
	}
	return docs, nil
}

func compileStage(name string, arg any, env *Env) (Stage, error) {
	d, isDoc := arg.(bson.D)
	needDoc := func() error {
		if !isDoc {
			return mongoerr.New(mongoerr.TypeMismatch, "the %s specification must be an object", name)
		}
		return nil
	}
	switch name {
	case "$match":
		if !isDoc {
			return Stage{}, mongoerr.New(15959, "the match filter must be an expression in an object")
		}
		m, err := Compile(d, env)
		return Stage{Each: func(in bson.D) (bson.D, bool, error) {
			ok, err := m.Match(in)
			return in, ok, err
		}}, err
	case "$project":
		if !isDoc || len(d) == 0 {
			return Stage{}, mongoerr.New(51272, "Invalid $project :: caused by :: projection specification must have at least one field")
		}
		return projecting(CompileProjection(d, env))
	case "$set", "$addFields":
		if err := needDoc(); err != nil {
			return Stage{}, err
		}
		return projecting(CompileAddFields(d, env))
	case "$unset":
		return compileUnset(arg, env)
	case "$replaceRoot", "$replaceWith":
		return compileReplace(name, arg, env)
	case "$sort":
		if err := needDoc(); err != nil {
			return Stage{}, err
		}
		s, err := CompileSort(d)
		if err == nil && env.collated() {
			s.collation = env.Collation
		}
		return Stage{All: func(docs []bson.D) ([]bson.D, error) { s.Docs(docs); return docs, nil }}, err
	case "$limit", "$skip":
		n, ok := value.AsInt(arg)
		switch {
		case name == "$limit" && ok && (n == 0 || (n < 0 && env.before(5, 0))):
			return Stage{}, mongoerr.New(15958, "the limit must be positive")
		case !ok && env.before(5, 0):
			return Stage{}, mongoerr.New(map[string]int32{"$limit": 15957, "$skip": 15972}[name], "the %s must be specified as a number", name[1:])
		case n < 0 && env.before(5, 0):
			return Stage{}, mongoerr.New(15956, "Argument to $skip cannot be negative")
		case (!ok || n < 0) && name == "$limit":
			return Stage{}, mongoerr.New(5107201, "invalid argument to $limit stage: Expected a non-negative number in: $limit: %v", arg)
		case !ok || n < 0:
			return Stage{}, mongoerr.New(5107200, "invalid argument to $skip stage: Expected a non-negative number in: $skip: %v", arg)
		}
		return Stage{All: func(docs []bson.D) ([]bson.D, error) {
			cut := min(n, int64(len(docs)))
			if name == "$limit" {
				return docs[:cut], nil
			}
			return docs[cut:], nil
		}}, nil
	case "$count":
		field, ok := arg.(string)
		switch {
		case !ok:
			return Stage{}, mongoerr.New(40156, "the count field must be a non-empty string")
		case field == "":
			return Stage{}, mongoerr.New(40157, "the count field must be a non-empty string")
		case field[0] == '$':
			return Stage{}, mongoerr.New(40158, "the count field cannot be a $-prefixed path")
		case strings.Contains(field, "."):
			return Stage{}, mongoerr.New(40160, "the count field cannot contain '.'")
		}
		return Stage{All: func(docs []bson.D) ([]bson.D, error) {
			if len(docs) == 0 {
				return nil, nil
			}
			return []bson.D{{{Key: field, Value: int32(len(docs))}}}, nil
		}}, nil
	case "$sample":
		return compileSample(arg)
	case "$unwind":
		return compileUnwind(arg)
	case "$group":
		if err := needDoc(); err != nil {
			return Stage{}, err
		}
		return compileGroup(d, env)
	case "$changeStream", "$changeStreamSplitLargeEvent":
		return Stage{}, mongoerr.New(40602, "%s is only valid at its own place in a change stream's pipeline", name)
	case "$out", "$merge":
		return Stage{}, mongoerr.New(40601, "%s can only be the final stage in the pipeline", name)
	}
	if compile, ok := moreStages[name]; ok {
		return compile(arg, env)
	}
	if slices.Contains(foreignStages, name) {
		return Stage{}, mongoerr.Unsupported("the stage %s", name)
	}
	return Stage{}, mongoerr.New(mongoerr.UnknownStage, "Unrecognized pipeline stage name: '%s'", name)
}

// CheckStages refuses stages that no server knows.
func CheckStages(a bson.A) error {
	for _, s := range a {
		if d := asDocument(s); len(d) == 1 && !isStage(d[0].Key) {
			return mongoerr.New(mongoerr.UnknownStage, "Unrecognized pipeline stage name: '%s'", d[0].Key)
		}
	}
	return nil
}

// isStage reports whether a server knows a stage of that name.
func isStage(name string) bool {
	_, err := compileStage(name, nil, nil)
	return !mongoerr.Is(err, mongoerr.UnknownStage)
}

func projecting(p *Projection, err error) (Stage, error) {
	return Stage{Each: func(in bson.D) (bson.D, bool, error) {
		out, err := p.Apply(in)
		return out, true, err
	}}, err
}

func compileUnset(arg any, env *Env) (Stage, error) {
	list, ok := arg.(bson.A)
	if !ok {
		list = bson.A{arg}
	}
	spec := bson.D{}
	for _, item := range list {
		path, ok := item.(string)
		if !ok || path == "" {
			return Stage{}, mongoerr.New(31002, "$unset specification must be a string or an array of strings")
		}
		spec = append(spec, bson.E{Key: path, Value: false})
	}
	return projecting(CompileProjection(spec, env))
}

func compileReplace(name string, arg any, env *Env) (Stage, error) {
	if name == "$replaceRoot" {
		d, _ := arg.(bson.D)
		v, ok := value.Get(d, "newRoot")
		if !ok || len(d) != 1 {
			return Stage{}, mongoerr.New(40230, "no newRoot specified for the $replaceRoot stage")
		}
		arg = v
	}
	e, err := CompileExpr(arg)
	if err != nil {
		return Stage{}, err
	}
	return Stage{Each: func(in bson.D) (bson.D, bool, error) {
		v, err := e.Eval(in, env)
		if err != nil {
			return nil, false, err
		}
		d, ok := v.(bson.D)
		if !ok {
			return nil, false, mongoerr.New(40228, "'newRoot' expression must evaluate to an object, but resulting value was of type %s", TypeName(v))
		}
		return d, true, nil
	}}, nil
}

// number sets the field of includeArrayIndex to the index of an element, or to null.
func (e *editor) number(path string, place any) error {
	if path == "" {
		return nil
	}
	return e.set(value.Split(path), place)
}

func compileUnwind(arg any) (Stage, error) {
	keepEmpty, index := false, ""
	path, ok := arg.(string)
	if d, isDoc := arg.(bson.D); isDoc {
		for _, f := range d {
			switch f.Key {
			case "path":
				path, ok = f.Value.(string)
			case "preserveNullAndEmptyArrays":
				keepEmpty = truthy(f.Value)
			case "includeArrayIndex":
				var isName bool
				if index, isName = f.Value.(string); !isName || index == "" || index[0] == '$' {
					return Stage{}, mongoerr.New(28810, "expected a non-empty string that does not begin with $ for the includeArrayIndex option to $unwind stage, got %v", f.Value)
				}
			default:
				return Stage{}, mongoerr.New(28811, "unrecognized option to $unwind stage: %s", f.Key)
			}
		}
	}
	if !ok || len(path) < 2 || path[0] != '$' {
		return Stage{}, mongoerr.New(28818, "path option to $unwind stage should be prefixed with a '$'")
	}
	parts := value.Split(path[1:])
	return Stage{All: func(docs []bson.D) ([]bson.D, error) {
		var out []bson.D
		for _, d := range docs {
			v, found := getPath(d, parts)
			list, isArray := v.(bson.A)
			switch {
			case isArray && len(list) > 0:
				for i, item := range list {
					e := editor{doc: value.CloneDoc(d)}
					if err := e.set(parts, item); err != nil {
						return nil, err
					}
					if err := e.number(index, int64(i)); err != nil {
						return nil, err
					}
					out = append(out, e.doc)
				}
			case (found && !isArray && v != nil) || keepEmpty:
				e := editor{doc: value.CloneDoc(d)}
				if isArray {
					e.unset(parts)
				}
				if err := e.number(index, nil); err != nil {
					return nil, err
				}
				out = append(out, e.doc)
			}
		}
		return out, nil
	}}, nil
}
