package query

import (
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/mongoerr"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/value"
)

// CompileFindProjection reads the projection of a find, which also supports $slice, $elemMatch and
// the positional $; nil if it is empty. The filter determines the element of $.
func CompileFindProjection(d, filter bson.D, env *Env) (*Projection, error) {
	plain, later := bson.D{}, []func(in, out bson.D) (bson.D, error){}
	var sliced []string
	included := false
	for _, f := range d {
		spec, _ := f.Value.(bson.D)
		var op string
		if len(spec) == 1 {
			op = spec[0].Key
		}
		switch path, positional := strings.CutSuffix(f.Key, ".$"); {
		case positional:
			p := positions{filter: filter, env: env}
			plain, included = append(plain, bson.E{Key: path, Value: true}), true
			later = append(later, func(in, out bson.D) (bson.D, error) {
				i, ok := p.met(in, path)
				list, _ := getPath(out, value.Split(path))
				items, isArray := list.(bson.A)
				if !ok || !isArray || i >= len(items) {
					return nil, mongoerr.New(51246, "Executor error during find command :: caused by :: positional operator '.$' couldn't find a matching element in the array")
				}
				return put(out, path, bson.A{items[i]})
			})
		case op == "$elemMatch":
			l, err := elemMatch(spec[0].Value, env)
			if err != nil {
				return nil, err
			}
			plain, included = append(plain, bson.E{Key: f.Key, Value: true}), true
			later = append(later, func(_, out bson.D) (bson.D, error) { return firstMatch(out, f.Key, l) })
		case op == "$slice" && isSlice(spec[0].Value):
			sliced = append(sliced, f.Key)
			later = append(later, func(_, out bson.D) (bson.D, error) { return cutArray(out, f.Key, spec[0].Value) })
		default:
			plain = append(plain, f)
			included = included || (f.Key != "_id" && truthy(f.Value))
		}
	}
	for _, path := range sliced {
		if included {
			plain = append(plain, bson.E{Key: path, Value: true})
		}
	}
	p, err := CompileProjection(plain, env)
	if p == nil && len(later) > 0 {
		p = &Projection{root: &node{}, env: env} // everything
	}
	if p != nil {
		p.later = later
	}
	return p, err
}

func put(d bson.D, path string, v any) (bson.D, error) {
	e := editor{doc: value.CloneDoc(d)}
	err := e.set(value.Split(path), v)
	return e.doc, err
}

func firstMatch(out bson.D, path string, l leaf) (bson.D, error) {
	list, _ := getPath(out, value.Split(path))
	items, _ := list.(bson.A)
	for _, item := range items {
		ok, err := l.test(bson.A{item})
		if err != nil {
			return nil, err
		}
		if ok {
			return put(out, path, bson.A{item})
		}
	}
	e := editor{doc: value.CloneDoc(out)}
	e.unset(value.Split(path))
	return e.doc, nil
}

// isSlice distinguishes {$slice: n} and {$slice: [skip, n]} from the expression.
func isSlice(v any) bool {
	items, isArray := v.(bson.A)
	if !isArray {
		items = bson.A{v}
	}
	for _, item := range items {
		if _, ok := value.AsInt(item); !ok {
			return false
		}
	}
	return len(items) == 1 || len(items) == 2
}

func cutArray(out bson.D, path string, spec any) (bson.D, error) {
	v, _ := getPath(out, value.Split(path))
	items, ok := v.(bson.A)
	if !ok {
		return out, nil
	}
	args := []any{items, spec}
	if both, isArray := spec.(bson.A); isArray {
		args = append([]any{items}, both...)
	}
	cut, err := slice(args)
	if err != nil {
		return nil, err
	}
	return put(out, path, cut)
}
