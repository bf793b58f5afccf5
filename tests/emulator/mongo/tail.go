package mongo

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/engine"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/mongoerr"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/query"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/value"
)

// tail is a tailable cursor's place in a capped collection. It belongs to its cursor.
type tail struct {
	ns         engine.NS
	matcher    *query.Matcher
	projection *query.Projection
	after      uint64
	awaits     bool
}

// openTail runs find with tailable.
func (r *request) openTail(ns engine.NS) (bson.D, error) {
	info, ok := r.srv.eng.Lookup(ns)
	if ok && !info.Capped {
		return nil, mongoerr.New(mongoerr.BadValue, "error processing query: ns=%s :: caused by :: tailable cursor requested on non capped collection", ns)
	}
	if ns == oplogNS {
		return nil, mongoerr.Unsupported("a tailable cursor on local.oplog.rs")
	}
	if sort, _ := r.get("sort").(bson.D); len(sort) > 0 && sort[0].Key != "$natural" {
		return nil, mongoerr.New(mongoerr.BadValue, "cannot use tailable option with a sort other than {$natural: 1}")
	}
	if err := r.refuse("skip", "limit"); err != nil {
		return nil, err
	}
	filter, err := r.doc("filter")
	if err != nil {
		return nil, err
	}
	fields, err := r.doc("projection")
	if err != nil {
		return nil, err
	}
	t := &tail{ns: ns, awaits: r.flag("awaitData")}
	if t.matcher, err = query.Compile(filter, r.env); err != nil {
		return nil, err
	}
	if t.projection, err = query.CompileFindProjection(fields, filter, r.env); err != nil {
		return nil, err
	}
	docs, err := t.next(r.srv.eng)
	if err != nil {
		return nil, err
	}
	v, given := value.Get(r.body, "batchSize")
	size, err := batchSize(v, given)
	if err != nil {
		return nil, err
	}
	if size < 0 {
		size = firstBatch
	}
	c := &cursor{ns: ns.String(), lsid: r.lsid, docs: docs, tail: t}
	batch := c.cut(size)
	if t.after != 0 { // there was nothing: a server's cursor is dead, too
		r.srv.cursors.add(c)
	}
	return bson.D{{Key: "cursor", Value: bson.D{{Key: "firstBatch", Value: batch}, {Key: "id", Value: c.id}, {Key: "ns", Value: c.ns}}}}, nil
}

func (t *tail) next(e *engine.Engine) ([]bson.Raw, error) {
	docs, last, lost, err := e.Tail(t.ns, t.after, t.matcher)
	if err != nil {
		return nil, err
	}
	if lost {
		return nil, mongoerr.New(mongoerr.CappedPositionLost, "CollectionScan died due to position in capped collection being deleted. Last seen record id: RecordId(%d)", t.after)
	}
	t.after = last
	if t.projection != nil {
		for i, raw := range docs {
			d, err := value.Decode(raw)
			if err != nil {
				return nil, err
			}
			if d, err = t.projection.Apply(d); err != nil {
				return nil, err
			}
			docs[i] = value.Encode(d)
		}
	}
	return docs, nil
}

// moreTail runs getMore: with awaitData it waits for documents, a kill, a step-down or the client's
// end.
func (r *request) moreTail(ctx context.Context, c *cursor, size int) ([]bson.Raw, error) {
	wait := defaultAwait
	if v, ok := value.Get(r.body, "maxTimeMS"); ok {
		ms, isInt := value.AsInt(v)
		if !isInt || ms < 0 || !c.tail.awaits {
			return nil, mongoerr.New(mongoerr.BadValue, "cannot set maxTimeMS on getMore command for a non-awaitData cursor")
		}
		wait = time.Duration(ms) * time.Millisecond
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	_, stepped := r.srv.primary()
	for {
		changed, _ := r.srv.eng.Changed()
		if len(c.docs) == 0 {
			var err error
			if c.docs, err = c.tail.next(r.srv.eng); err != nil {
				return nil, err
			}
		}
		if len(c.docs) > 0 || !c.tail.awaits {
			return c.cut(size), nil
		}
		select {
		case <-changed:
		case <-timer.C:
			return nil, nil
		case <-c.killed:
			return nil, c.cause
		case <-stepped:
			return nil, errSteppedDown
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
