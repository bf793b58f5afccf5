package engine

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/mongoerr"
)

// Txn is an open multi-document transaction. Its fields are guarded by Engine.mu;
// one command at a time uses it.
type Txn struct {
	LSID   bson.Raw
	Number int64

	// Strict: it was begun with read concern snapshot. Set before its first statement runs.
	Strict bool

	snapshot bson.Timestamp
	colls    map[NS]*Collection // that it has made
	ops      []op
	touched  map[*Collection]bool
	records  map[*record]*Collection
	done     chan struct{} // closed at commit or abort
	ended    bool
	timer    *time.Timer
}

// op is a write that waits for its transaction to commit.
type op struct {
	coll  *Collection
	entry *Entry
}

// Begin opens a transaction that reads the latest committed state. It is aborted after lifetime, as
// a server does after 60 s.
func (e *Engine) Begin(lsid bson.Raw, number int64, lifetime time.Duration) *Txn {
	e.mu.Lock()
	defer e.mu.Unlock()
	t := &Txn{LSID: lsid, Number: number, snapshot: e.clock, touched: map[*Collection]bool{}, colls: map[NS]*Collection{}, records: map[*record]*Collection{}, done: make(chan struct{})}
	e.txns[t] = struct{}{}
	t.timer = time.AfterFunc(lifetime, func() { e.Abort(t) })
	return t
}

// Snapshot returns the moment the transaction reads.
func (t *Txn) Snapshot() bson.Timestamp { return t.snapshot }

// Commit makes the transaction's writes visible at one cluster time. It fails with
// NoSuchTransaction if the transaction was no longer open, and with WriteConflict, which aborts it,
// if another client has created a collection that it creates.
func (e *Engine) Commit(t *Txn) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if t.ended {
		return Aborted(t.Number)
	}
	for ns := range t.colls {
		if e.colls[ns] != nil {
			e.abort(t)
			return conflict()
		}
	}
	for ns, c := range t.colls {
		c.creator, e.colls[ns] = nil, c
		e.created(c)
	}
	if len(t.ops) > 0 {
		at := e.tick()
		for r, c := range t.records {
			e.push(c, r, r.pending.raw, at)
			r.pending, r.owner = nil, nil
		}
		for i, o := range t.ops {
			o.entry.At, o.entry.TxnOp, o.entry.LSID, o.entry.TxnNumber = at, i, t.LSID, t.Number
			e.append(o.entry)
		}
	}
	e.end(t)
	e.trim()
	return nil
}

// Abort undoes the transaction; false when it was no longer open.
func (e *Engine) Abort(t *Txn) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if t.ended {
		return false
	}
	e.abort(t)
	return true
}

func (e *Engine) abort(t *Txn) {
	for r, c := range t.records {
		c.unindex(r, r.pending.raw)
		r.pending, r.owner = nil, nil
		if (r.head == nil || r.head.raw == nil) && c.byID[r.key] == r {
			if r.head == nil {
				c.leave(r)
			} else { // a tombstone whose turn to be dropped may have passed meanwhile
				e.history = append(e.history, superseded{at: e.clock, coll: c, rec: r})
			}
		}
	}
	e.end(t)
}

func (e *Engine) end(t *Txn) {
	t.ended = true
	t.timer.Stop()
	delete(e.txns, t)
	close(t.done)
}

// Open reports whether the transaction can still be used.
func (e *Engine) Open(t *Txn) bool {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return !t.ended
}

// AbortAll ends every open transaction, as a step-down or shutdown does.
func (e *Engine) AbortAll() {
	e.mu.RLock()
	all := make([]*Txn, 0, len(e.txns))
	for t := range e.txns {
		all = append(all, t)
	}
	e.mu.RUnlock()
	for _, t := range all {
		e.Abort(t)
	}
}

// errWait asks the caller to let go of the lock and to try again after done. queued, unless nil, is
// a collection for whose exclusive lock the caller waits.
type errWait struct {
	done   <-chan struct{}
	queued *Collection
}

func (errWait) Error() string { return "waiting for a transaction" }

// locked runs f under the write lock, and repeats it while it meets documents of open transactions.
// Inside a transaction that is a WriteConflict instead. A transaction that was aborted in the
// meantime writes nothing, since its writes would never be undone.
func (e *Engine) locked(ctx context.Context, txn *Txn, f func() error) error {
	for {
		e.mu.Lock()
		if txn != nil && txn.ended {
			e.mu.Unlock()
			return Aborted(txn.Number)
		}
		err := f()
		e.trim()
		w, waiting := err.(errWait) //nolint:errorlint // never wrapped
		if waiting && txn == nil && w.queued != nil {
			w.queued.queue++
		}
		e.mu.Unlock()
		switch {
		case !waiting:
			return err
		case txn != nil:
			return conflict()
		}
		select {
		case <-w.done:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		if w.queued != nil {
			e.mu.Lock()
			w.queued.queue--
			e.mu.Unlock()
		}
		if ctx.Err() != nil {
			return err
		}
	}
}

// lockable refuses, or has wait, a write to a collection for whose exclusive lock another command
// waits: it queues behind that command. In a transaction that has no lock of the collection yet
// this is a LockTimeout, after 5 ms on a server.
func (e *Engine) lockable(txn *Txn, c *Collection) error {
	if c.queue == 0 || txn != nil && txn.touched[c] {
		return nil
	}
	for t := range e.txns {
		switch {
		case !t.touched[c]:
		case txn != nil:
			return mongoerr.New(mongoerr.LockTimeout, "Unable to acquire IX lock on '%s' within 5ms.", c.NS)
		default:
			return errWait{done: t.done}
		}
	}
	return nil
}

func conflict() error {
	return mongoerr.New(mongoerr.WriteConflict, "Caused by :: Write conflict during plan execution and yielding is disabled. :: Please retry your operation or multi-document transaction.")
}

// Aborted returns the error of a statement whose transaction is no longer open.
func Aborted(number int64) error {
	return mongoerr.New(mongoerr.NoSuchTransaction, "Transaction with { txnNumber: %d } has been aborted.", number)
}
