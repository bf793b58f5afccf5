package engine

import (
	"bytes"
	"cmp"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/keystring"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/query"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/value"
)

// candidates calls yield for every record that may match: those that an index on an equality
// condition contains, those in a range of _id, or all. sorted reports that they come in the order
// of s. It stops when yield returns false; yield must not add or remove _ids.
func (c *Collection) candidates(sel Selection, yield func(r *record, sorted bool) bool) {
	filter, s := sel.Filter, sel.Sort
	plain := func(r *record) bool { return yield(r, false) }
	eqs := query.Equalities(filter)
	for _, eq := range eqs {
		if eq.Path == "_id" && (sel.Collation == nil || !value.HasText(bson.A(eq.Values))) {
			c.byIDs(eq.Values, plain)
			return
		}
	}
	for _, ix := range c.indexes {
		if keys, ok := ix.lookup(eqs, sel.Collation); ok {
			var hits []*record
			for _, k := range keys {
				for r := range ix.entries[k] {
					hits = append(hits, r)
				}
			}
			slices.SortFunc(hits, func(a, b *record) int { return cmp.Compare(a.seq, b.seq) })
			for _, r := range slices.Compact(hits) {
				if !plain(r) {
					return
				}
			}
			return
		}
	}
	b, within := rangeOf(filter)
	if sel.Collation != nil {
		b, within = bounds{}, false // the order of _id is that of its bytes
	}
	if descending, sorted := byOrder(s); sorted || within {
		c.ordered.scan(b, descending, func(r *record) bool { return yield(r, sorted) })
		return
	}
	for r := c.first; r != nil; {
		next := r.next // yield may move r to the end
		if !plain(r) {
			return
		}
		r = next
	}
}

func (c *Collection) byIDs(values []any, yield func(*record) bool) {
	seen := map[string]bool{}
	for _, v := range values {
		k := keystring.Of(v)
		if r := c.byID[k]; r != nil && !seen[k] {
			seen[k] = true
			if !yield(r) {
				return
			}
		}
	}
}

// lookup gives the index keys to visit when every field of the index has an equality condition.
func (ix *Index) lookup(eqs []query.Equality, c *value.Collation) ([]string, bool) {
	if ix.filter != nil {
		return nil, false
	}
	keys := []string{""}
	for _, k := range ix.Key {
		var values []any
		found := false
		for _, eq := range eqs {
			if eq.Path == k.Key && !found {
				values, found = eq.Values, true
			}
		}
		if !found {
			return nil, false
		}
		next := make([]string, 0, len(keys)*len(values))
		for _, v := range values {
			switch v.(type) {
			case bson.A, nil, value.Missing: // keyed by element, or perhaps not at all
				return nil, false
			}
			if value.HasText(v) && !ix.collation.Same(c) {
				return nil, false
			}
			for _, prefix := range keys {
				next = append(next, prefix+keystring.Of(ix.collation.Key(v)))
			}
		}
		keys = next
	}
	return keys, true
}

// each calls f with the first match of a selection, or with every match when
// multi: those are all chosen before the first call, so f may write. The caller
// holds the lock.
func (e *Engine) each(c *Collection, v View, s Selection, multi bool, f func(*record, bson.Raw, bson.D) error) error {
	type match struct {
		r   *record
		raw bson.Raw
		doc bson.D
	}
	var found []match
	var failed error
	c.candidates(s, func(r *record, sorted bool) bool {
		raw := r.see(v)
		if raw == nil {
			return true
		}
		doc, err := value.Decode(raw)
		if err == nil {
			var ok bool
			if ok, err = s.Matcher.Match(doc); !ok && err == nil {
				return true
			}
		}
		if err != nil {
			failed = err
			return false
		}
		m := match{r, raw, doc}
		switch {
		case multi || len(found) == 0:
			found = append(found, m)
		case s.Sort.Compare(doc, found[0].doc) < 0:
			found[0] = m
		}
		return multi || (s.Sort != nil && !sorted)
	})
	if failed != nil {
		return failed
	}
	for _, m := range found {
		if err := f(m.r, m.raw, m.doc); err != nil {
			return err
		}
	}
	return nil
}

// Find calls yield with every matching document under the read lock: yield must be quick and must
// not write. The documents come in the selection's order if sorted is true; otherwise in natural
// order unless an index was used. Find stops when yield returns false. doc is nil if the filter is
// empty.
func (e *Engine) Find(ns NS, v View, s Selection, yield func(raw bson.Raw, doc bson.D, sorted bool) bool) error {
	e.mu.RLock()
	defer e.mu.RUnlock()
	c, err := e.coll(ns, v.Txn)
	if c == nil || err != nil {
		return err
	}
	if err := c.readable(); err != nil {
		return err
	}
	var failed error
	c.candidates(s, func(r *record, sorted bool) bool {
		raw := r.see(v)
		if raw == nil {
			return true
		}
		if len(s.Filter) == 0 {
			return yield(raw, nil, sorted)
		}
		doc, err := value.Decode(raw)
		if err != nil {
			failed = err
			return false
		}
		ok, err := s.Matcher.Match(doc)
		if err != nil {
			failed = err
			return false
		}
		return !ok || yield(raw, doc, sorted)
	})
	return failed
}

// Get reads one document by _id; nil without one.
func (e *Engine) Get(ns NS, v View, id any) bson.Raw {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.colls[ns].get(v, id)
}

// Current reads what one document of a collection is by now; nil when it is gone, or where another
// collection than that of the uuid has taken the name. A nil uuid is any collection's.
func (e *Engine) Current(ns NS, uuid []byte, id any) bson.Raw {
	e.mu.RLock()
	defer e.mu.RUnlock()
	c := e.colls[ns]
	if c == nil || (uuid != nil && !bytes.Equal(c.UUID, uuid)) {
		return nil
	}
	return c.get(View{}, id)
}

func (c *Collection) get(v View, id any) bson.Raw {
	if c == nil {
		return nil
	}
	r := c.byID[keystring.Of(id)]
	if r == nil {
		return nil
	}
	return r.see(v)
}
