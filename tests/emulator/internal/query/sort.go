package query

import (
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/mongoerr"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/value"
)

// Sort is a compiled sort specification.
type Sort struct {
	paths [][]string
	signs []int

	collation *value.Collation
}

// Collate makes texts have the order of a collation; nil is that of bytes.
func (s *Sort) Collate(c *value.Collation) { s.collation = c }

// CompileSort reads {path: 1 | -1, …}.
func CompileSort(d bson.D) (*Sort, error) {
	s := &Sort{}
	for _, e := range d {
		n, ok := value.AsInt(e.Value)
		if !ok {
			return nil, mongoerr.Unsupported("the sort order %v of %q", e.Value, e.Key)
		}
		if n != 1 && n != -1 {
			return nil, mongoerr.New(15975, "$sort key ordering must be 1 (for ascending) or -1 (for descending)")
		}
		if strings.HasPrefix(e.Key, "$") {
			return nil, mongoerr.Unsupported("sorting by %s", e.Key)
		}
		s.paths = append(s.paths, value.Split(e.Key))
		s.signs = append(s.signs, int(n))
	}
	return s, nil
}

// ByID reports whether _id determines the order, as it does in first place, and whether the sort is
// descending.
func (s *Sort) ByID() (descending, ok bool) {
	if s.collation != nil || len(s.paths) == 0 || len(s.paths[0]) != 1 || s.paths[0][0] != "_id" {
		return false, false
	}
	return s.signs[0] < 0, true
}

// Compare orders two documents; 0 when every key ties.
func (s *Sort) Compare(a, b bson.D) int {
	for i, p := range s.paths {
		if c := value.Compare(s.key(a, p, s.signs[i]), s.key(b, p, s.signs[i])); c != 0 {
			return c * s.signs[i]
		}
	}
	return 0
}

// key returns the least value a path reaches for an ascending sort, the greatest
// for a descending one; a missing field sorts as null, an empty array below it.
// An _id that alone decides the order sorts as it is, as in the index on it.
func (s *Sort) key(d bson.D, path []string, sign int) any {
	if len(s.paths) == 1 && len(path) == 1 && path[0] == "_id" {
		id, _ := value.Get(d, "_id")
		return s.collation.Key(id)
	}
	var best any
	found := false
	consider := func(v any) {
		if _, missing := v.(value.Missing); missing {
			v = nil
		}
		v = s.collation.Key(v)
		if !found || value.Compare(v, best)*sign < 0 {
			best, found = v, true
		}
	}
	value.Walk(d, path, func(v any, _ bool) bool {
		list, isArray := v.(bson.A)
		if !isArray {
			consider(v)
			return false
		}
		if len(list) == 0 {
			consider(bson.Undefined{})
		}
		for _, e := range list {
			consider(e)
		}
		return false
	})
	return best
}

// Docs sorts in place, stably.
func (s *Sort) Docs(docs []bson.D) { slices.SortStableFunc(docs, s.Compare) }
