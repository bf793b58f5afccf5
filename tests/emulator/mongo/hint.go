package mongo

import (
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/engine"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/mongoerr"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/query"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/value"
)

// hint refuses an index that does not exist, as a planner does. One that exists is
// not forced: the plan never changes a result here. A collection that does not
// exist has nothing to plan.
func (r *request) hint(ns engine.NS, v any) error {
	if d, ok := v.(bson.D); v == nil || (ok && len(d) == 0) {
		return nil
	}
	info, ok := r.srv.eng.Lookup(ns)
	if !ok {
		return nil
	}
	switch t := v.(type) {
	case string:
		if t == "_id_" {
			return nil
		}
		for _, ix := range info.Indexes {
			if ix.Name == t {
				return nil
			}
		}
	case bson.D:
		if t[0].Key == "$natural" || value.Equal(t, bson.D{{Key: "_id", Value: int32(1)}}) {
			return nil
		}
		for _, ix := range info.Indexes {
			if value.Equal(ix.Key, t) {
				return nil
			}
		}
	default:
		return mongoerr.New(mongoerr.FailedToParse, "Hint must be a string or an object, not %s", query.TypeName(v))
	}
	return mongoerr.New(mongoerr.BadValue, "error processing query: ns=%s :: caused by :: planner returned error :: caused by :: hint provided does not correspond to an existing index", ns)
}

// minimum is the find option min: the least entry of an index from which on documents are read. The
// end is the entry of greatest keys, which is not part of the result.
type minimum struct {
	index    bson.D
	sort     *query.Sort
	from, to bson.D // as documents
}

// minimum reads the find option min, which needs the hint of an index with the same fields.
func (r *request) minimum(ns engine.NS) (*minimum, error) {
	bound, err := r.doc("min")
	if err != nil || len(bound) == 0 {
		return nil, err
	}
	index, ok := r.get("hint").(bson.D)
	if name, named := r.get("hint").(string); named {
		index, ok = r.indexKey(ns, name), true
	}
	switch {
	case !ok || len(index) == 0:
		return nil, mongoerr.New(51173, "When using min()/max() a hint of which index to use must be provided")
	case index[0].Key == "$natural":
		return nil, mongoerr.New(291, "min and max are incompatible with $natural")
	case !slices.EqualFunc(index, bound, func(a, b bson.E) bool { return a.Key == b.Key }):
		return nil, mongoerr.New(51174, "The index chosen is not compatible with min/max")
	}
	m := &minimum{index: index}
	if m.sort, err = query.CompileSort(index); err != nil {
		return nil, err
	}
	for _, e := range bound {
		m.from = append(m.from, nested(e.Key, e.Value))
		m.to = append(m.to, nested(e.Key, bson.MaxKey{}))
	}
	return m, nil
}

// indexKey returns the key of the index with a name, or nil.
func (r *request) indexKey(ns engine.NS, name string) bson.D {
	if name == "_id_" {
		return bson.D{{Key: "_id", Value: int32(1)}}
	}
	info, _ := r.srv.eng.Lookup(ns)
	for _, ix := range info.Indexes {
		if ix.Name == name {
			return ix.Key
		}
	}
	return nil
}

// nested returns a field at a dotted path.
func nested(path string, v any) bson.E {
	name, rest, dotted := strings.Cut(path, ".")
	if !dotted {
		return bson.E{Key: name, Value: v}
	}
	return bson.E{Key: name, Value: bson.D{nested(rest, v)}}
}

// read returns the documents within the bounds.
func (m *minimum) read(docs []bson.Raw) (kept []bson.Raw, err error) {
	for _, raw := range docs {
		d, err := value.Decode(raw)
		if err != nil {
			return nil, err
		}
		if m.sort.Compare(d, m.from) >= 0 && m.sort.Compare(d, m.to) < 0 {
			kept = append(kept, raw)
		}
	}
	return kept, nil
}
