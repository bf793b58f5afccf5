package engine

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/query"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/value"
)

// ErrSnapshot is a snapshot that cannot be read: not one, of another version, or cut off.
var ErrSnapshot = errors.New("not a whole snapshot of this version")

// A snapshot is a sequence of BSON documents, each {kind: content}: one head, then
// each collection followed by its documents, the oplog, and a tail that counts
// what came before, so that a file that was cut off is noticed.
const (
	snapshotVersion = 1
	maxSnapshotDoc  = 64 << 20 // an oplog entry holds up to three documents
)

// Save writes the committed state and the oplog as of one moment. Open
// transactions, older versions of documents and sessions are not part of it.
func (e *Engine) Save(w io.Writer) error {
	var parts []bson.D
	part := func(kind string, content any) { parts = append(parts, bson.D{{Key: kind, Value: content}}) }
	e.mu.RLock()
	part("head", bson.D{{Key: "version", Value: int32(snapshotVersion)}, {Key: "clock", Value: e.clock}, {Key: "base", Value: int64(e.oplog.base)}, {Key: "truncated", Value: e.oplog.truncated}})
	for ns, c := range e.colls {
		indexes := bson.A{}
		for _, ix := range c.indexes {
			indexes = append(indexes, ix.Spec)
		}
		part("collection", bson.D{{Key: "db", Value: ns.DB}, {Key: "coll", Value: ns.Coll}, {Key: "uuid", Value: bson.Binary{Subtype: 4, Data: c.UUID}}, {Key: "options", Value: append(bson.D{}, c.Options...)}, {Key: "indexes", Value: indexes}})
		for r := c.first; r != nil; r = r.next {
			if raw := r.see(View{}); raw != nil {
				part("document", raw)
			}
		}
	}
	entries := append([]*Entry{}, e.oplog.entries...) // never changed once logged
	e.mu.RUnlock()
	out := bufio.NewWriter(w)
	var buf []byte
	write := func(d bson.D) error {
		buf = value.AppendDoc(buf[:0], d)
		_, err := out.Write(buf)
		return err
	}
	for _, d := range parts {
		if err := write(d); err != nil {
			return fmt.Errorf("write snapshot: %w", err)
		}
	}
	for _, x := range entries {
		if err := write(bson.D{{Key: "entry", Value: x.document()}}); err != nil {
			return fmt.Errorf("write snapshot: %w", err)
		}
	}
	if err := write(bson.D{{Key: "tail", Value: int64(len(parts) + len(entries))}}); err != nil {
		return fmt.Errorf("write snapshot: %w", err)
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write snapshot: %w", err)
	}
	return nil
}

// Restore replaces the state of this engine, which must not be in use yet, with a saved one. Change
// streams resume in it with the tokens of the saved one. ErrSnapshot leaves the engine unchanged.
func (e *Engine) Restore(r io.Reader) error {
	next := New(e.opts)
	next.oplog.entries, next.oplog.bytes = nil, 0
	var current *Collection
	in := bufio.NewReader(r)
	for n := int64(0); ; n++ {
		kind, v, err := readPart(in)
		if err != nil {
			return fmt.Errorf("read snapshot: %w: %w", ErrSnapshot, err)
		}
		if (n == 0) != (kind == "head") {
			return fmt.Errorf("read snapshot: %w", ErrSnapshot)
		}
		switch kind {
		case "head":
			err = next.restoreHead(v)
		case "collection":
			current, err = next.restoreCollection(v)
		case "document":
			err = next.restoreDocument(current, v)
		case "entry":
			err = next.restoreEntry(v)
		case "tail":
			if count, ok := v.Int64OK(); !ok || count != n || len(next.oplog.entries) == 0 {
				return fmt.Errorf("read snapshot: %w", ErrSnapshot)
			}
			e.mu.Lock()
			defer e.mu.Unlock()
			e.colls, e.clock, e.oldest, e.history, e.historyBytes = next.colls, next.clock, next.clock, nil, 0
			next.oplog.changed = e.oplog.changed
			next.oplog.watched = e.oplog.watched
			e.oplog = next.oplog
			return nil
		default:
			err = ErrSnapshot
		}
		if err != nil {
			return fmt.Errorf("read snapshot's %s: %w", kind, err)
		}
	}
}

func readPart(in *bufio.Reader) (kind string, v bson.RawValue, err error) {
	head, err := in.Peek(4)
	if err != nil {
		return "", v, err
	}
	size := int64(binary.LittleEndian.Uint32(head))
	if size < 5 || size > maxSnapshotDoc {
		return "", v, fmt.Errorf("a part of %d bytes", size)
	}
	raw, err := io.ReadAll(io.LimitReader(in, size)) // grows with what is really there
	if err != nil {
		return "", v, err
	}
	if err := bson.Raw(raw).Validate(); err != nil {
		return "", v, err
	}
	e, err := bson.Raw(raw).IndexErr(0)
	if err != nil {
		return "", v, err
	}
	return e.Key(), e.Value(), nil
}

// content decodes a part; what it lacks is zero.
func content(v bson.RawValue) (bson.D, error) {
	raw, ok := v.DocumentOK()
	if !ok {
		return nil, ErrSnapshot
	}
	return value.Decode(raw)
}

func at[T any](d bson.D, key string) T {
	v, _ := value.Get(d, key)
	t, _ := v.(T)
	return t
}

func (e *Engine) restoreHead(v bson.RawValue) error {
	d, err := content(v)
	if err != nil {
		return err
	}
	if at[int32](d, "version") != snapshotVersion {
		return ErrSnapshot
	}
	e.clock, e.oplog.base, e.oplog.truncated = at[bson.Timestamp](d, "clock"), uint64(at[int64](d, "base")), at[bool](d, "truncated")
	return nil
}

func (e *Engine) restoreCollection(v bson.RawValue) (*Collection, error) {
	d, err := content(v)
	if err != nil {
		return nil, err
	}
	c := &Collection{NS: NS{at[string](d, "db"), at[string](d, "coll")}, UUID: at[bson.Binary](d, "uuid").Data, Options: at[bson.D](d, "options"), byID: map[string]*record{}}
	if err := checkName(c.NS); err != nil {
		return nil, err
	}
	if err := c.setOptions(c.Options); err != nil {
		return nil, err
	}
	for _, item := range at[bson.A](d, "indexes") {
		spec, _ := item.(bson.D)
		partial, _ := value.Get(spec, "partialFilterExpression")
		filter, _ := partial.(bson.D)
		ix, err := NewIndex(at[string](spec, "name"), at[bson.D](spec, "key"), at[bool](spec, "unique"), at[bool](spec, "sparse"), filter, spec)
		if err != nil {
			return nil, err
		}
		if v, ok := value.Get(spec, "expireAfterSeconds"); ok {
			seconds, _ := value.AsInt(v)
			ix.TTL = time.Duration(seconds) * time.Second
		}
		c.indexes = append(c.indexes, ix)
	}
	e.colls[c.NS], c.born = c, e.clock
	return c, nil
}

func (e *Engine) restoreDocument(c *Collection, v bson.RawValue) error {
	raw, ok := v.DocumentOK()
	if !ok || c == nil {
		return ErrSnapshot
	}
	_, key, err := idOf(raw)
	if err != nil {
		return err
	}
	if c.byID[key] != nil {
		return ErrSnapshot
	}
	r := &record{key: key, head: &version{at: e.clock, raw: raw}}
	c.byID[key] = r
	c.ordered.add(r)
	c.link(r)
	c.index(r, raw)
	c.live++
	c.size += len(raw)
	return nil
}

// document returns an entry as a snapshot holds it.
func (x *Entry) document() bson.D {
	d := bson.D{{Key: "at", Value: x.At}, {Key: "op", Value: int32(x.TxnOp)}, {Key: "wall", Value: x.Wall}, {Key: "kind", Value: int32(x.Kind)}, {Key: "db", Value: x.NS.DB}, {Key: "coll", Value: x.NS.Coll}}
	add := func(key string, v any, present bool) {
		if present {
			d = append(d, bson.E{Key: key, Value: v})
		}
	}
	add("toDB", x.To.DB, x.To != NS{})
	add("toColl", x.To.Coll, x.To != NS{})
	add("uuid", bson.Binary{Subtype: 4, Data: x.UUID}, x.UUID != nil)
	add("id", x.ID, x.ID.Type != 0)
	add("shardKey", x.ShardKey, x.ShardKey != nil)
	add("full", x.Full, x.Full != nil)
	add("pre", x.Pre, x.Pre != nil)
	add("images", x.Images, x.Images)
	add("updated", x.Change.Updated, x.Change.Updated != nil)
	add("removed", x.Change.Removed, x.Change.Removed != nil)
	add("truncated", x.Change.Truncated, x.Change.Truncated != nil)
	add("description", x.Description, x.Description != nil)
	add("view", x.View, x.View)
	add("lsid", x.LSID, x.LSID != nil)
	add("txnNumber", x.TxnNumber, x.LSID != nil)
	return d
}

func (e *Engine) restoreEntry(v bson.RawValue) error {
	d, err := content(v)
	if err != nil {
		return err
	}
	raw := func(key string) bson.Raw {
		rv, _ := value.RawField(bson.Raw(v.Value), key)
		doc, _ := rv.DocumentOK()
		return doc
	}
	kind := Kind(at[int32](d, "kind"))
	if kind > DropDatabase {
		return ErrSnapshot
	}
	x := &Entry{
		At: at[bson.Timestamp](d, "at"), TxnOp: int(at[int32](d, "op")), Wall: at[bson.DateTime](d, "wall").Time(), Kind: kind,
		NS: NS{at[string](d, "db"), at[string](d, "coll")}, To: NS{at[string](d, "toDB"), at[string](d, "toColl")}, UUID: at[bson.Binary](d, "uuid").Data,
		ShardKey: at[bson.D](d, "shardKey"), Full: raw("full"), Pre: raw("pre"), Images: at[bool](d, "images"),
		Change:      query.Change{Replace: kind == Replace, Updated: at[bson.D](d, "updated"), Truncated: at[bson.A](d, "truncated")},
		Description: at[bson.D](d, "description"), View: at[bool](d, "view"), LSID: raw("lsid"), TxnNumber: at[int64](d, "txnNumber"),
	}
	for _, item := range at[bson.A](d, "removed") {
		path, _ := item.(string)
		x.Change.Removed = append(x.Change.Removed, path)
	}
	x.ID, _ = value.RawField(bson.Raw(v.Value), "id")
	e.oplog.entries = append(e.oplog.entries, x)
	e.oplog.bytes += x.size()
	return nil
}
