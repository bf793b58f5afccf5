package engine

import (
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/mongoerr"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/query"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/value"
)

// capped is the size limit of a capped collection: bytes, and documents; 0 is unlimited.
type capped struct{ bytes, documents int64 }

func newCapped(options bson.D) (c capped, err error) {
	on, _ := value.Get(options, "capped")
	size, hasSize := value.Get(options, "size")
	most, _ := value.Get(options, "max")
	if on != true {
		if hasSize || most != nil {
			return c, mongoerr.New(mongoerr.InvalidOptions, "the 'capped' field needs to be true when either the 'size' or 'max' fields are present")
		}
		return c, nil
	}
	var ok bool
	if c.bytes, ok = value.AsInt(size); !ok || c.bytes < 1 {
		return capped{}, mongoerr.New(mongoerr.InvalidOptions, "the 'size' field is required when 'capped' is true")
	}
	c.bytes = max((c.bytes+255)/256*256, 4096) // as a server rounds it
	c.documents, _ = value.AsInt(most)
	return c, nil
}

// writable refuses a view, and whatever readable refuses; nil is a collection that does not exist
// yet.
func (c *Collection) writable() error {
	if c != nil && c.view {
		return mongoerr.New(mongoerr.ViewNotSupported, "Namespace %s is a view, not a collection", c.NS)
	}
	return c.readable()
}

// readable refuses a collection with a collation of its own: every command without one, and the
// index on _id, would have to compare by it.
func (c *Collection) readable() error {
	if c == nil || c.view {
		return nil
	}
	if _, collated := value.Get(c.Options, "collation"); collated {
		return mongoerr.Unsupported("a document of a collection with a collation")
	}
	return nil
}

// overflow removes the oldest documents of a capped collection that exceed its limit; the caller
// holds the lock.
func (e *Engine) overflow(c *Collection, b *batch) error {
	if c.capped == (capped{}) {
		return nil
	}
	for r := c.first; r != nil && (int64(c.size) > c.capped.bytes || (c.capped.documents > 0 && int64(c.live) > c.capped.documents)); {
		next := r.next
		if raw := r.see(View{}); raw != nil {
			id, _ := value.RawField(raw, "_id")
			x := &Entry{Kind: Delete, ID: id}
			if e.opts.QuietCaps {
				x.Kind = Noop
			}
			if c.PreImages {
				x.Pre = raw
			}
			if err := e.write(nil, c, r, nil, x, b); err != nil {
				return err
			}
		}
		r = next
	}
	return nil
}

// Tail reads a capped collection from a position in its order, 0 for its beginning: it returns the
// documents that match, and the position of the last one examined. lost reports that the document
// at the given position has been removed.
func (e *Engine) Tail(ns NS, after uint64, m *query.Matcher) (docs []bson.Raw, last uint64, lost bool, err error) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	c := e.colls[ns]
	if c == nil {
		return nil, after, true, nil
	}
	last, lost = after, after != 0
	for r := c.first; r != nil; r = r.next {
		raw := r.see(View{})
		if raw == nil || r.seq < after {
			continue
		}
		if r.seq == after {
			lost = false
			continue
		}
		if lost {
			return nil, after, true, nil
		}
		last = r.seq
		doc, err := value.Decode(raw)
		if err != nil {
			return nil, after, false, err
		}
		ok, err := m.Match(doc)
		if err != nil {
			return nil, after, false, err
		}
		if ok {
			docs = append(docs, raw)
		}
	}
	return docs, last, lost, nil
}
