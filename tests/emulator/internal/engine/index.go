package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/keystring"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/mongoerr"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/query"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/value"
)

// Index is a secondary index: from the key of each retained version to its
// records. A hit is a candidate that the reader still has to match.
type Index struct {
	Name    string
	Key     bson.D
	Unique  bool
	Sparse  bool
	Partial bson.D
	TTL     time.Duration // age at which documents are deleted; negative: never
	Spec    bson.D        // as listIndexes shows it

	paths     [][]string
	collation *value.Collation
	filter    *query.Matcher
	entries   map[string]map[*record]int // versions of the record that have the key
}

// NewIndex compiles a specification. The caller sets TTL.
func NewIndex(name string, key bson.D, unique, sparse bool, partial bson.D, spec bson.D) (*Index, error) {
	ix := &Index{Name: name, Key: key, Unique: unique, Sparse: sparse, Partial: partial, TTL: -1, Spec: spec, entries: map[string]map[*record]int{}}
	if len(key) == 0 {
		return nil, mongoerr.New(mongoerr.CannotCreateIndex, "Index keys cannot be an empty object")
	}
	for _, k := range key {
		n, ok := value.AsInt(k.Value)
		if !ok {
			return nil, mongoerr.Unsupported("index type %v of %q", k.Value, k.Key)
		}
		if n == 0 || k.Key == "" || strings.HasPrefix(k.Key, "$") || strings.Contains(k.Key, "$**") {
			return nil, mongoerr.New(mongoerr.CannotCreateIndex, "bad index key %q: %v", k.Key, k.Value)
		}
		ix.paths = append(ix.paths, value.Split(k.Key))
	}
	collation, _ := value.Get(spec, "collation")
	var err error
	if ix.collation, err = query.ParseCollation(collation); err != nil {
		return nil, err
	}
	if partial != nil {
		m, err := query.Compile(partial, &query.Env{})
		if err != nil {
			return nil, err
		}
		ix.filter = m
	}
	return ix, nil
}

// keys lists the index keys of a document; several when a path meets an array.
func (ix *Index) keys(raw bson.Raw) ([]string, error) {
	if raw == nil {
		return nil, nil
	}
	doc, err := ix.fields(raw)
	if err != nil {
		return nil, err
	}
	if ix.filter != nil {
		if ok, err := ix.filter.Match(doc); !ok || err != nil {
			return nil, err
		}
	}
	keys := []string{""}
	present, arrays := false, 0
	for _, path := range ix.paths {
		var parts []string
		isArray := false
		value.Walk(doc, path, func(v any, _ bool) bool {
			if _, missing := v.(value.Missing); !missing {
				present = true
			}
			if list, ok := v.(bson.A); ok {
				isArray = true
				for _, item := range list {
					parts = append(parts, keystring.Of(ix.collation.Key(item)))
				}
				if len(list) == 0 {
					parts = append(parts, keystring.Of(bson.Undefined{}))
				}
				return false
			}
			parts = append(parts, keystring.Of(ix.collation.Key(v)))
			return false
		})
		if isArray || len(parts) > 1 {
			arrays++
		}
		if len(parts) == 0 {
			parts = []string{keystring.Of(nil)}
		}
		next := make([]string, 0, len(keys)*len(parts))
		for _, k := range keys {
			for _, p := range parts {
				next = append(next, k+p)
			}
		}
		keys = next
	}
	if arrays > 1 && topLevel(ix.paths) > 1 {
		return nil, mongoerr.New(171, "cannot index parallel arrays in index %s", ix.Name)
	}
	if ix.Sparse && !present {
		return nil, nil
	}
	slices.Sort(keys)
	return slices.Compact(keys), nil
}

func topLevel(paths [][]string) int {
	seen := map[string]bool{}
	for _, p := range paths {
		seen[p[0]] = true
	}
	return len(seen)
}

// fields decodes what the index needs of a document: all of it for a partial index.
func (ix *Index) fields(raw bson.Raw) (bson.D, error) {
	if ix.filter != nil {
		return value.Decode(raw)
	}
	doc := make(bson.D, 0, len(ix.paths))
	for _, p := range ix.paths {
		if _, have := value.Get(doc, p[0]); have {
			continue
		}
		rv, ok := value.RawField(raw, p[0])
		if !ok {
			continue
		}
		v, _, err := value.DecodeValue(rv.Type, rv.Value)
		if err != nil {
			return nil, err
		}
		doc = append(doc, bson.E{Key: p[0], Value: v})
	}
	return doc, nil
}

func (c *Collection) index(r *record, raw bson.Raw) {
	for _, ix := range c.indexes {
		ix.add(r, raw)
	}
}

func (ix *Index) add(r *record, raw bson.Raw) {
	keys, _ := ix.keys(raw) // checked before the write
	for _, k := range keys {
		m := ix.entries[k]
		if m == nil {
			m = make(map[*record]int, 1)
			ix.entries[k] = m
		}
		m[r]++
	}
}

func (c *Collection) unindex(r *record, raw bson.Raw) {
	for _, ix := range c.indexes {
		keys, _ := ix.keys(raw)
		for _, k := range keys {
			m := ix.entries[k]
			if m[r]--; m[r] <= 0 {
				delete(m, r)
			}
			if len(m) == 0 {
				delete(ix.entries, k)
			}
		}
	}
}

// unique checks that no other document that is or may become visible has a key of raw.
func (c *Collection) unique(txn *Txn, self *record, raw bson.Raw) error {
	for _, ix := range c.indexes {
		keys, err := ix.keys(raw)
		if err != nil {
			return err
		}
		if !ix.Unique {
			continue
		}
		for _, k := range keys {
			for r := range ix.entries[k] {
				if r == self {
					continue
				}
				if err := ix.clash(txn, r, k, raw); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (ix *Index) clash(txn *Txn, r *record, key string, raw bson.Raw) error {
	has := func(v *version) bool {
		if v == nil {
			return false
		}
		keys, _ := ix.keys(v.raw)
		return slices.Contains(keys, key)
	}
	if r.owner != nil && r.owner != txn {
		if has(r.pending) || has(r.head) {
			return errWait{done: r.owner.done}
		}
		return nil
	}
	current := r.head
	if r.owner != nil {
		current = r.pending
	}
	if !has(current) {
		return nil
	}
	if txn != nil && r.owner == nil && value.CompareTimestamps(r.head.at, txn.snapshot) > 0 {
		return conflict()
	}
	doc, err := ix.fields(raw)
	if err != nil {
		return err
	}
	values := bson.D{}
	for _, k := range ix.Key {
		v, ok := value.Lookup(doc, k.Key)
		if !ok {
			v = nil
		}
		values = append(values, bson.E{Key: k.Key, Value: v})
	}
	return &clashError{ix, values}
}

// clashError is a duplicate key before the collection's name is known.
type clashError struct {
	index  *Index
	values bson.D
}

func (c *clashError) Error() string { return "duplicate key in index " + c.index.Name }

// duplicate returns the error of a unique index as clients see it.
func duplicate(ns NS, index string, pattern, values bson.D) error {
	e := mongoerr.New(mongoerr.DuplicateKey, "E11000 duplicate key error collection: %s index: %s dup key: %s", ns, index, shell(values))
	e.Extra = bson.D{{Key: "keyPattern", Value: pattern}, {Key: "keyValue", Value: values}}
	return e
}

func shell(d bson.D) string {
	var parts []string
	for _, f := range d {
		parts = append(parts, f.Key+": "+shellValue(f.Value))
	}
	return "{ " + strings.Join(parts, ", ") + " }"
}

func shellValue(v any) string {
	switch t := v.(type) {
	case nil:
		return "null"
	case string:
		return fmt.Sprintf("%q", t)
	case bson.D:
		return shell(t)
	case bson.ObjectID:
		return "ObjectId('" + t.Hex() + "')"
	case float64:
		s := fmt.Sprint(t)
		if t == float64(int64(t)) {
			s = fmt.Sprintf("%.1f", t)
		}
		return s
	case bson.DateTime:
		return fmt.Sprintf("new Date(%d)", int64(t))
	case bson.Binary:
		if id, err := uuid.FromBytes(t.Data); err == nil && t.Subtype == bson.TypeBinaryUUID {
			return fmt.Sprintf("UUID(%q)", id)
		}
		return fmt.Sprintf("BinData(%d, %X)", t.Subtype, t.Data)
	default:
		return fmt.Sprint(t)
	}
}

// indexed logs a new index.
func (e *Engine) indexed(c *Collection, ix *Index) {
	e.log(&Entry{Kind: CreateIndexes, NS: c.NS, UUID: c.UUID, Description: bson.D{{Key: "indexes", Value: bson.A{ix.Spec}}}})
}

// CreateIndex builds an index; created reports whether it created the collection. In a transaction
// the collection must be one that the transaction created and left empty.
func (e *Engine) CreateIndex(ctx context.Context, ns NS, txn *Txn, ix *Index) (before, after int, created bool, err error) {
	err = e.locked(ctx, txn, func() error {
		was, err := e.coll(ns, txn)
		if err != nil {
			return err
		}
		existed := was != nil
		c, err := e.ensure(ns, txn)
		if err != nil {
			return err
		}
		if err := c.writable(); err != nil {
			return err
		}
		created = !existed
		before = len(c.indexes) + 1
		after = before
		for _, have := range c.indexes {
			sameKey := value.Equal(have.Key, ix.Key)
			sameKind := have.Unique == ix.Unique && have.Sparse == ix.Sparse && have.collation.Same(ix.collation) && value.Equal(have.Partial, ix.Partial)
			switch {
			case have.Name == ix.Name && sameKey && sameKind && have.TTL == ix.TTL:
				return nil
			case have.Name == ix.Name && (!sameKey || !sameKind): // the expiry does not distinguish indexes
				return mongoerr.New(mongoerr.IndexKeySpecsConflict, "An existing index has the same name as the requested index. Requested index: %s", ix.Name)
			case sameKey:
				return mongoerr.New(mongoerr.IndexOptionsConflict, "Index already exists with a different name or options: %s", have.Name)
			}
		}
		if txn != nil && (c.creator != txn || c.first != nil) {
			return mongoerr.New(mongoerr.OperationNotInTransaction, "Cannot create new indexes on existing collection %s in a multi-document transaction.", ns)
		}
		if txn == nil { // one that is there is found without waiting
			if err := e.untouched(c); err != nil {
				return err
			}
		}
		if err := c.build(ix); err != nil {
			return err
		}
		c.indexes = append(c.indexes, ix)
		after++
		if txn == nil {
			e.indexed(c, ix)
		}
		return nil
	})
	return before, after, created, err
}

func (c *Collection) build(ix *Index) error {
	for r := c.first; r != nil; r = r.next {
		for v := r.head; v != nil; v = v.prev {
			keys, err := ix.keys(v.raw)
			if err != nil {
				return err
			}
			if v == r.head && ix.Unique {
				for _, k := range keys {
					for other := range ix.entries[k] {
						if err := ix.clash(nil, other, k, v.raw); err != nil {
							return named(err, c.NS)
						}
					}
				}
			}
			ix.add(r, v.raw)
		}
	}
	return nil
}

// DropIndexes removes an index by name or key pattern; "*" removes all but _id.
func (e *Engine) DropIndexes(ctx context.Context, ns NS, matches func(*Index) bool) (before int, found bool, err error) {
	err = e.locked(ctx, nil, func() error {
		c := e.colls[ns]
		if c == nil {
			return mongoerr.New(mongoerr.NamespaceNotFound, "ns not found %s", ns)
		}
		before = len(c.indexes) + 1
		n := len(c.indexes)
		c.indexes = slices.DeleteFunc(slices.Clone(c.indexes), matches)
		if found = len(c.indexes) < n; found {
			e.log(&Entry{Kind: DropIndexes, NS: ns, UUID: c.UUID})
		}
		return nil
	})
	return before, found, err
}
