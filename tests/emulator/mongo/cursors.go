package mongo

import (
	"bytes"
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/engine"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/mongoerr"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/query"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/value"
)

const (
	firstBatch    = 101 // documents, if the client does not set it
	maxBatchBytes = value.MaxDocument
	cursorTimeout = 10 * time.Minute
)

// cursors are the open cursors of the server.
type cursors struct {
	mu  sync.Mutex
	all map[int64]*cursor
}

// cursor belongs to the goroutine that marked it busy; the table's lock guards busy, used and
// cause.
type cursor struct {
	id     int64
	ns     string
	lsid   bson.Raw
	txn    *engine.Txn
	docs   []bson.Raw
	stream *stream
	tail   *tail
	uuid   []byte // of the collection read; nil: of none
	busy   bool
	used   time.Time
	killed chan struct{}
	cause  error // why it was killed while busy
}

func newCursors() *cursors { return &cursors{all: map[int64]*cursor{}} }

func (t *cursors) add(c *cursor) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	for id, old := range t.all {
		if !old.busy && now.Sub(old.used) > cursorTimeout {
			delete(t.all, id)
		}
	}
	for c.id == 0 || t.all[c.id] != nil {
		c.id = rand.Int64()
	}
	c.used, c.killed = now, make(chan struct{})
	t.all[c.id] = c
}

// take marks a cursor busy.
func (t *cursors) take(id int64) (*cursor, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.all[id]
	if c == nil {
		return nil, mongoerr.New(mongoerr.CursorNotFound, "cursor id %d not found", id)
	}
	if c.busy {
		return nil, mongoerr.New(12051, "cursor id %d is already in use", id)
	}
	c.busy = true
	return c, nil
}

// release gives a cursor back; done removes it.
func (t *cursors) release(c *cursor, done bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c.busy, c.used = false, time.Now()
	if done {
		delete(t.all, c.id)
	}
}

func (t *cursors) kill(id int64, cause error) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.all[id]
	if c == nil {
		return false
	}
	t.killLocked(c, cause)
	return true
}

func (t *cursors) killLocked(c *cursor, cause error) {
	delete(t.all, c.id)
	c.cause = cause
	close(c.killed)
}

// streams returns the number of open change streams.
func (t *cursors) streams() (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.all {
		if c.stream != nil {
			n++
		}
	}
	return n
}

func (t *cursors) killAll() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.all {
		t.killLocked(c, mongoerr.New(mongoerr.CursorNotFound, "cursor id %d not found", c.id))
	}
}

// killOf ends the cursors of a session.
func (t *cursors) killOf(lsid bson.Raw) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.all {
		if bytes.Equal(c.lsid, lsid) {
			t.killLocked(c, mongoerr.New(mongoerr.CursorKilled, "cursor id %d was killed", c.id))
		}
	}
}

// killStreams ends the change streams; those that wait fail with cause.
func (t *cursors) killStreams(cause error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.all {
		if c.stream != nil {
			t.killLocked(c, cause)
		}
	}
}

// batchSize reads the option; negative means that the client did not set it.
func batchSize(v any, given bool) (int, error) {
	if !given || v == nil {
		return -1, nil
	}
	n, ok := value.AsInt(v)
	if !ok || n < 0 {
		return 0, mongoerr.New(51024, "BSON field 'batchSize' value must be a whole number >= 0, actual value %v", v)
	}
	return int(min(n, 1<<30)), nil
}

// openCursor answers with the first batch, and keeps a cursor for what is left.
func (r *request) openCursor(ns string, docs []bson.Raw, opts bson.D) (bson.D, error) {
	v, given := value.Get(opts, "batchSize")
	size, err := batchSize(v, given)
	if err != nil {
		return nil, err
	}
	if size < 0 {
		size = firstBatch
	}
	c := &cursor{ns: ns, lsid: r.lsid, txn: r.txn, docs: docs}
	if at, err := parseNS(ns); err == nil && r.txn == nil {
		info, _ := r.srv.eng.Lookup(at)
		c.uuid = info.UUID
	}
	batch := c.cut(size)
	id := int64(0)
	if single, _ := value.Get(opts, "single"); len(c.docs) > 0 && single != true {
		r.srv.cursors.add(c)
		id = c.id
	}
	d := bson.D{{Key: "firstBatch", Value: batch}, {Key: "id", Value: id}, {Key: "ns", Value: ns}}
	if !r.view.At.IsZero() && r.cmd.snapshot {
		d = append(d, bson.E{Key: "atClusterTime", Value: r.view.At})
	}
	return bson.D{{Key: "cursor", Value: d}}, nil
}

// cut takes the next batch off the cursor.
func (c *cursor) cut(size int) []bson.Raw {
	n, bytes := 0, 0
	for n < len(c.docs) && n < size {
		if bytes += len(c.docs[n]) + 12; bytes > maxBatchBytes && n > 0 {
			break
		}
		n++
	}
	batch := c.docs[:n:n]
	c.docs = c.docs[n:]
	return batch
}

// belongs refuses a getMore from another session or transaction than the cursor's.
func (c *cursor) belongs(r *request) error {
	switch {
	case c.lsid == nil && r.lsid != nil:
		return mongoerr.New(50736, "Cannot run getMore on cursor %d, which was not created in a session, in a session", c.id)
	case c.lsid != nil && r.lsid == nil:
		return mongoerr.New(50737, "Cannot run getMore on cursor %d, which was created in a session, without an lsid", c.id)
	case !bytes.Equal(c.lsid, r.lsid):
		return mongoerr.New(50738, "Cannot run getMore on cursor %d, which was created in another session", c.id)
	case c.txn == nil && r.txn != nil:
		return mongoerr.New(50739, "Cannot run getMore on cursor %d, which was not created in a transaction, in a transaction", c.id)
	case c.txn != nil && r.txn == nil:
		return mongoerr.New(50740, "Cannot run getMore on cursor %d, which was created in a transaction, without a txnNumber", c.id)
	case c.txn != r.txn:
		return mongoerr.New(50741, "Cannot run getMore on cursor %d, which belongs to another transaction", c.id)
	}
	return nil
}

func runGetMore(ctx context.Context, r *request) (bson.D, error) {
	id, ok := r.body[0].Value.(int64)
	if !ok {
		return nil, mongoerr.New(mongoerr.TypeMismatch, "BSON field 'getMore.getMore' is the wrong type '%s', expected type 'long'", query.TypeName(r.body[0].Value))
	}
	coll, _ := r.get("collection").(string)
	c, err := r.srv.cursors.take(id)
	if err != nil {
		return nil, err
	}
	done := false
	defer func() { r.srv.cursors.release(c, done) }()
	if c.ns != r.db+"."+coll {
		return nil, mongoerr.New(mongoerr.Unauthorized, "Requested getMore on namespace '%s.%s', but cursor belongs to a different namespace %s", r.db, coll, c.ns)
	}
	if err := c.belongs(r); err != nil {
		return nil, err
	}
	if c.uuid != nil {
		ns, _ := parseNS(c.ns)
		if info, _ := r.srv.eng.Lookup(ns); !bytes.Equal(info.UUID, c.uuid) {
			done = true
			return nil, mongoerr.New(mongoerr.QueryPlanKilled, "collection renamed or dropped. UUID %x", c.uuid)
		}
	}
	v, given := value.Get(r.body, "batchSize")
	size, err := batchSize(v, given)
	if err != nil {
		return nil, err
	}
	if size <= 0 {
		size = 1 << 30
	}
	if c.stream != nil {
		r.stream = true
		reply, ended, err := r.moreStream(ctx, c, size)
		done = ended || err != nil
		return reply, err
	}
	if c.tail != nil {
		batch, err := r.moreTail(ctx, c, size)
		if done = err != nil; done {
			return nil, err
		}
		return bson.D{{Key: "cursor", Value: bson.D{{Key: "nextBatch", Value: batch}, {Key: "id", Value: c.id}, {Key: "ns", Value: c.ns}}}}, nil
	}
	if r.has("maxTimeMS") {
		return nil, mongoerr.New(mongoerr.BadValue, "cannot set maxTimeMS on getMore command for a non-awaitData cursor")
	}
	batch := c.cut(size)
	id = c.id
	if len(c.docs) == 0 {
		done, id = true, 0
	}
	return bson.D{{Key: "cursor", Value: bson.D{{Key: "nextBatch", Value: batch}, {Key: "id", Value: id}, {Key: "ns", Value: c.ns}}}}, nil
}

func runKillCursors(_ context.Context, r *request) (bson.D, error) {
	list, ok := r.get("cursors").(bson.A)
	if !ok {
		return nil, mongoerr.New(mongoerr.TypeMismatch, "BSON field 'killCursors.cursors' must be an array")
	}
	killed, missing := []int64{}, []int64{}
	for _, v := range list {
		id, ok := v.(int64)
		if !ok {
			return nil, mongoerr.New(mongoerr.TypeMismatch, "killCursors.cursors must hold longs")
		}
		if r.srv.cursors.kill(id, mongoerr.New(mongoerr.CursorKilled, "cursor id %d was killed", id)) {
			killed = append(killed, id)
		} else {
			missing = append(missing, id)
		}
	}
	return bson.D{{Key: "cursorsKilled", Value: killed}, {Key: "cursorsNotFound", Value: missing}, {Key: "cursorsAlive", Value: []int64{}}, {Key: "cursorsUnknown", Value: []int64{}}}, nil
}

// isStream reports whether a command opens or reads a change stream, for error labels.
func (s *Server) isStream(r *request) bool {
	switch r.name {
	case "aggregate":
		stages, _ := r.get("pipeline").(bson.A)
		if len(stages) == 0 {
			return false
		}
		d, _ := stages[0].(bson.D)
		return len(d) == 1 && d[0].Key == "$changeStream"
	case "getMore":
		id, _ := r.body[0].Value.(int64)
		s.cursors.mu.Lock()
		defer s.cursors.mu.Unlock()
		c := s.cursors.all[id]
		return c != nil && c.stream != nil
	}
	return false
}
