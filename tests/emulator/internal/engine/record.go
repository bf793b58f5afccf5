package engine

import (
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/mongoerr"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/value"
)

// record is every version of the document with one _id. Guarded by Engine.mu.
type record struct {
	key     string   // keystring of _id
	seq     uint64   // place in natural order
	head    *version // newest committed; nil before the first commit
	pending *version // written by owner, not committed
	owner   *Txn
	prev    *record
	next    *record
}

type version struct {
	at   bson.Timestamp
	raw  bson.Raw // nil: deleted
	prev *version
}

// View is the state that a reader sees: the latest committed one, that of a moment, or a
// transaction's snapshot with its own writes.
type View struct {
	Txn *Txn
	At  bson.Timestamp // zero: latest
}

func (r *record) see(v View) bson.Raw {
	if v.Txn != nil {
		if r.owner == v.Txn {
			return r.pending.raw
		}
		v.At = v.Txn.snapshot
	}
	ver := r.head
	if !v.At.IsZero() {
		for ver != nil && value.CompareTimestamps(ver.at, v.At) > 0 {
			ver = ver.prev
		}
	}
	if ver == nil {
		return nil
	}
	return ver.raw
}

func (c *Collection) link(r *record) {
	c.seq++
	r.seq, r.prev, r.next = c.seq, c.last, nil
	if c.last != nil {
		c.last.next = r
	} else {
		c.first = r
	}
	c.last = r
}

// leave removes a record without versions.
func (c *Collection) leave(r *record) {
	delete(c.byID, r.key)
	c.ordered.remove(r)
	c.unlink(r)
}

func (c *Collection) unlink(r *record) {
	if r.prev != nil {
		r.prev.next = r.next
	} else {
		c.first = r.next
	}
	if r.next != nil {
		r.next.prev = r.prev
	} else {
		c.last = r.prev
	}
	r.prev, r.next = nil, nil
}

// superseded records that a record got a version whose predecessor may be dropped once no snapshot
// can need it.
type superseded struct {
	at   bson.Timestamp // of the newer version
	coll *Collection
	rec  *record
	size int
}

// push commits a version. The caller has put its index entries in place.
func (e *Engine) push(c *Collection, r *record, raw bson.Raw, at bson.Timestamp) {
	was := r.head != nil && r.head.raw != nil
	if r.head != nil || raw == nil {
		size := 0
		if was {
			size = len(r.head.raw)
		}
		e.history = append(e.history, superseded{at, c, r, size})
		e.historyBytes += size
	}
	if was {
		c.size -= len(r.head.raw)
	}
	c.size += len(raw)
	r.head = &version{at: at, raw: raw, prev: r.head}
	if is := raw != nil; is && !was {
		c.live++
	} else if was && !is {
		c.live--
	}
}

// window returns how far back moments can be read.
func (e *Engine) window() bson.Timestamp {
	return bson.Timestamp{T: uint32(max(time.Now().Add(-e.opts.HistoryWindow).Unix(), 0))}
}

// trim drops versions that neither an open transaction nor the window protects.
func (e *Engine) trim() {
	if len(e.history) == 0 {
		return
	}
	limit := e.clock
	for t := range e.txns {
		if value.CompareTimestamps(t.snapshot, limit) < 0 {
			limit = t.snapshot
		}
	}
	window := e.window()
	n := 0
	for ; n < len(e.history); n++ {
		h := &e.history[n]
		if value.CompareTimestamps(h.at, limit) > 0 {
			break
		}
		if e.historyBytes <= e.opts.HistoryBytes && value.CompareTimestamps(h.at, window) > 0 {
			break
		}
		e.forget(h)
		*h = superseded{}
	}
	if e.history = e.history[n:]; len(e.history) == 0 {
		e.history = nil
	}
}

func (e *Engine) forget(h *superseded) {
	e.historyBytes -= h.size
	if value.CompareTimestamps(h.at, e.oldest) > 0 {
		e.oldest = h.at
	}
	keep := h.rec.head
	for keep != nil && value.CompareTimestamps(keep.at, h.at) > 0 {
		keep = keep.prev
	}
	if keep == nil {
		return
	}
	for v := keep.prev; v != nil; v = v.prev {
		h.coll.unindex(h.rec, v.raw)
	}
	keep.prev = nil
	if keep == h.rec.head && keep.raw == nil && h.rec.owner == nil && h.coll.byID[h.rec.key] == h.rec {
		h.coll.leave(h.rec)
	}
}

// SnapshotAt checks that a moment can still be read.
func (e *Engine) SnapshotAt(at bson.Timestamp) error {
	e.mu.RLock()
	defer e.mu.RUnlock()
	if value.CompareTimestamps(at, e.oldest) < 0 || value.CompareTimestamps(at, e.window()) < 0 {
		return mongoerr.New(mongoerr.SnapshotTooOld, "Read timestamp %v is older than the oldest available timestamp.", at)
	}
	if value.CompareTimestamps(at, e.clock) > 0 {
		return mongoerr.New(mongoerr.BadValue, "Requested atClusterTime %v is in the future", at)
	}
	return nil
}
