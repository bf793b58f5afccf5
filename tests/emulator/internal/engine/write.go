package engine

import (
	"context"
	"errors"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/keystring"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/mongoerr"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/query"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/value"
)

// vectored is how many inserts of one command share a cluster time, as the
// batches a server replicates together do.
const vectored = 500

// badID is the code of an _id of a type that none may have.
const badID = 53

// old reports whether the engine acts as one before 5.0.
func (e *Engine) old() bool { return e.opts.Version[0] != 0 && e.opts.Version[0] < 5 }

func idOf(raw bson.Raw) (bson.RawValue, string, error) {
	rv, ok := value.RawField(raw, "_id")
	if !ok {
		return rv, "", mongoerr.New(mongoerr.BadValue, "document has no _id")
	}
	switch rv.Type {
	case bson.TypeArray, bson.TypeRegex, bson.TypeUndefined:
		return rv, "", mongoerr.New(badID, "The '_id' value cannot be of type %s", rv.Type)
	default:
	}
	v, _, err := value.DecodeValue(rv.Type, rv.Value)
	if err != nil {
		return rv, "", err
	}
	return rv, keystring.Of(v), nil
}

// batch gives entries of one statement their cluster time.
type batch struct {
	at bson.Timestamp
	n  int
}

// write puts one version of a record in place: into the transaction, or committed
// at once. raw nil deletes. The caller holds the lock and has matched the record.
func (e *Engine) write(txn *Txn, c *Collection, r *record, raw bson.Raw, x *Entry, b *batch) error {
	if err := e.lockable(txn, c); err != nil {
		return err
	}
	if r.owner != nil && r.owner != txn {
		return errWait{done: r.owner.done}
	}
	if txn != nil && r.owner == nil && r.head != nil && value.CompareTimestamps(r.head.at, txn.snapshot) > 0 {
		return conflict()
	}
	if err := e.vetoed(txn, c.NS, x.ID, raw); err != nil {
		return err
	}
	if raw != nil {
		if len(raw) > value.MaxDocument {
			return tooLarge(x.Kind, len(raw))
		}
		if err := c.unique(txn, r, raw); err != nil {
			return named(err, c.NS)
		}
	}
	x.NS, x.UUID, x.Images = c.NS, c.UUID, c.PreImages
	if c.byID[r.key] != r {
		c.byID[r.key] = r
		c.ordered.add(r)
		c.link(r)
	} else if x.Kind == Insert && c.last != r {
		c.unlink(r)
		c.link(r)
	}
	c.index(r, raw)
	if txn != nil {
		if r.owner != nil {
			c.unindex(r, r.pending.raw)
		}
		r.owner, r.pending = txn, &version{raw: raw}
		txn.records[r], txn.touched[c] = c, true
		txn.ops = append(txn.ops, op{c, x})
		return nil
	}
	if b == nil || b.n%vectored == 0 {
		x.At = e.tick()
	} else {
		x.At, x.TxnOp = b.at, b.n%vectored
	}
	if b != nil {
		b.at = x.At
		b.n++
	}
	e.push(c, r, raw, x.At)
	e.append(x)
	return nil
}

func tooLarge(k Kind, size int) error {
	if k == Insert {
		return mongoerr.New(mongoerr.UpsertedDocumentTooLarge, "Document to upsert is larger than %d", value.MaxDocument)
	}
	return mongoerr.New(mongoerr.ResultingDocumentTooLarge, "Resulting document after update is larger than %d: it has %d bytes", value.MaxDocument, size)
}

// named completes a unique index's error, which does not know its collection.
func named(err error, ns NS) error {
	if d, ok := errors.AsType[*clashError](err); ok {
		return duplicate(ns, d.index.Name, d.index.Key, d.values)
	}
	return err
}

// insert adds one document; the caller holds the lock.
func (e *Engine) insert(txn *Txn, c *Collection, raw bson.Raw, b *batch) error {
	id, key, err := idOf(raw)
	if mongoerr.Is(err, badID) && e.old() {
		return mongoerr.New(mongoerr.BadValue, "%s", mongoerr.From(err).Msg)
	}
	if err != nil {
		return err
	}
	r := c.byID[key]
	if r == nil {
		r = &record{key: key}
	}
	if r.owner != nil && r.owner != txn {
		return errWait{done: r.owner.done}
	}
	current := r.head
	if r.owner != nil {
		current = r.pending
	}
	if current != nil && current.raw != nil {
		if txn != nil && r.owner == nil && value.CompareTimestamps(r.head.at, txn.snapshot) > 0 {
			return conflict()
		}
		v, _, _ := value.DecodeValue(id.Type, id.Value)
		return duplicate(c.NS, "_id_", bson.D{{Key: "_id", Value: int32(1)}}, bson.D{{Key: "_id", Value: v}})
	}
	if txn != nil && c.capped != (capped{}) {
		return mongoerr.New(mongoerr.OperationNotInTransaction, "Collection '%s' is a capped collection. Writes in transactions are not allowed on capped collections.", c.NS)
	}
	if err := e.write(txn, c, r, raw, &Entry{Kind: Insert, ID: id, ShardKey: e.shardKey(c, raw), Full: raw}, b); err != nil {
		return err
	}
	return e.overflow(c, b)
}

// Insert adds documents, each with its _id in first place. It reports what became
// of each to outcome with the document's index, and stops at an error when
// ordered. The returned error is one that ends the whole command.
func (e *Engine) Insert(ctx context.Context, ns NS, txn *Txn, docs []bson.Raw, ordered bool, outcome func(i int, err error)) (n int, err error) {
	i := 0
	var b batch
	err = e.locked(ctx, txn, func() error {
		c, err := e.ensure(ns, txn)
		if err != nil {
			return err
		}
		for ; i < len(docs); i++ {
			err := e.validateRaw(ctx, c, docs[i])
			if err == nil {
				err = e.insert(txn, c, docs[i], &b)
			}
			if err == nil {
				n++
				outcome(i, nil)
				continue
			}
			if _, wait := err.(errWait); wait { //nolint:errorlint // never wrapped
				return err
			}
			if txn != nil {
				return err
			}
			outcome(i, err)
			if ordered {
				i = len(docs)
			}
		}
		return nil
	})
	return n, err
}

// Selection selects the documents of updates, deletes and findAndModify.
type Selection struct {
	Filter  bson.D
	Matcher *query.Matcher
	Sort    *query.Sort // nil: natural order
	// Collation is the one that Matcher and Sort were compiled with.
	Collation *value.Collation
}

// UpdateSpec is one update statement.
type UpdateSpec struct {
	Selection
	Update *query.Update
	Upsert bool
	Multi  bool
}

// WriteResult is the result of one statement.
type WriteResult struct {
	Matched, Modified int
	UpsertedID        *bson.RawValue
	Before, After     bson.Raw // of the last document
}

// Update runs one statement. In a transaction any error means the transaction must be aborted.
func (e *Engine) Update(ctx context.Context, ns NS, txn *Txn, u UpdateSpec) (WriteResult, error) {
	var res WriteResult
	seen := map[*record]bool{} // a document is updated once, even when the update waits half-way
	err := e.locked(ctx, txn, func() error {
		c, err := e.coll(ns, txn)
		if err != nil {
			return err
		}
		if err := c.writable(); err != nil {
			return err
		}
		if c != nil {
			err := e.each(c, View{Txn: txn}, u.Selection, u.Multi, func(r *record, raw bson.Raw, doc bson.D) error {
				if seen[r] {
					return nil
				}
				if err := e.modify(ctx, txn, c, r, raw, doc, u.Update, &res); err != nil {
					return err
				}
				seen[r] = true
				return nil
			})
			if err != nil {
				return err
			}
		}
		if !u.Upsert || res.Matched > 0 {
			return nil
		}
		return e.upsert(ctx, ns, txn, u, &res)
	})
	return res, err
}

func (e *Engine) modify(ctx context.Context, txn *Txn, c *Collection, r *record, raw bson.Raw, doc bson.D, u *query.Update, res *WriteResult) error {
	now, change, err := u.Apply(doc, false)
	if err != nil {
		return err
	}
	if !change.Empty() {
		if err := e.validate(ctx, c, doc, now); err != nil {
			return err
		}
		id, _ := value.RawField(raw, "_id")
		next := value.Encode(now)
		x := &Entry{Kind: Update, ID: id, ShardKey: e.shardKey(c, raw), Full: next, Change: change}
		if change.Replace {
			x.Kind = Replace
		}
		if c.PreImages {
			x.Pre = raw
		}
		if err := e.write(txn, c, r, next, x, nil); err != nil {
			return err
		}
		res.Modified++
		res.After = next
	} else {
		res.After = raw
	}
	res.Matched++
	res.Before = raw
	return nil
}

func (e *Engine) upsert(ctx context.Context, ns NS, txn *Txn, u UpdateSpec, res *WriteResult) error {
	c, err := e.ensure(ns, txn)
	if err != nil {
		return err
	}
	seed, err := query.UpsertSeed(u.Filter, u.Update.IsReplacement())
	if err != nil {
		return err
	}
	now, _, err := u.Update.Apply(seed, true)
	if err != nil {
		return err
	}
	now = WithID(now)
	if err := e.validate(ctx, c, nil, now); err != nil {
		return err
	}
	raw := value.Encode(now)
	if err := e.insert(txn, c, raw, nil); err != nil {
		return err
	}
	id, _ := value.RawField(raw, "_id")
	res.UpsertedID, res.After = &id, raw
	return nil
}

// WithID returns a document with its _id first, or with a new ObjectId if it has no _id.
func WithID(d bson.D) bson.D {
	id, ok := value.Get(d, "_id")
	if ok && d[0].Key == "_id" {
		return d
	}
	if !ok {
		id = bson.NewObjectID()
	}
	return append(bson.D{{Key: "_id", Value: id}}, value.Remove(d, "_id")...)
}

// Delete removes the documents of a selection, one or all.
func (e *Engine) Delete(ctx context.Context, ns NS, txn *Txn, s Selection, multi bool) (WriteResult, error) {
	var res WriteResult
	err := e.locked(ctx, txn, func() error {
		c, err := e.coll(ns, txn)
		if c == nil || err != nil {
			return err
		}
		if err := c.writable(); err != nil {
			return err
		}
		return e.each(c, View{Txn: txn}, s, multi, func(r *record, raw bson.Raw, _ bson.D) error {
			id, _ := value.RawField(raw, "_id")
			x := &Entry{Kind: Delete, ID: id, ShardKey: e.shardKey(c, raw)}
			if c.PreImages {
				x.Pre = raw
			}
			if err := e.write(txn, c, r, nil, x, nil); err != nil {
				return err
			}
			res.Matched++
			res.Before = raw
			return nil
		})
	})
	return res, err
}

// shardKey returns the fields of a document by which its collection is sharded; nil if it is not.
func (e *Engine) shardKey(c *Collection, raw bson.Raw) bson.D {
	name, sharded := e.opts.ShardKeys[c.NS.String()]
	if !sharded {
		return nil
	}
	v, ok := value.RawField(raw, name)
	if !ok {
		return nil
	}
	decoded, _, _ := value.DecodeValue(v.Type, v.Value)
	return bson.D{{Key: name, Value: decoded}}
}
