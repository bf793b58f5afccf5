package mongo

import (
	"context"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/engine"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/mongoerr"
)

// sessions remember, per logical session, the last transaction or retryable write.
type sessions struct {
	eng *engine.Engine
	mu  sync.Mutex
	all map[string]*session
}

// session is used by one numbered command at a time: the command that holds busy owns the rest.
type session struct {
	busy   chan struct{}
	number int64
	reply  bson.D // of the retryable write with this number; nil before it succeeded
	done   []any  // results of its statements until then; nil for those that had no effect
	write  string // its command
	txn    *engine.Txn
	state  txnState
	open   open // the data of the transaction for status commands
}

type txnState int

const (
	noTxn txnState = iota
	inProgress
	committed
	aborted
)

func newSessions(e *engine.Engine) *sessions {
	return &sessions{eng: e, all: map[string]*session{}}
}

func (t *sessions) checkout(ctx context.Context, lsid bson.Raw) (*session, error) {
	t.mu.Lock()
	s := t.all[string(lsid)]
	if s == nil {
		s = &session{busy: make(chan struct{}, 1), number: -1}
		t.all[string(lsid)] = s
	}
	t.mu.Unlock()
	select {
	case s.busy <- struct{}{}:
		return s, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// around runs a command under the rules of its session: a retried write gets the
// first execution's reply, a transaction's statement runs inside it.
func (t *sessions) around(ctx context.Context, r *request, run func() (bson.D, error)) (bson.D, error) {
	if !r.numbered {
		if r.multi {
			return nil, mongoerr.New(mongoerr.InvalidOptions, "'autocommit' field requires a transaction number to also be specified")
		}
		if r.cmd.finishes {
			return nil, mongoerr.New(mongoerr.OperationNotInTransaction, "%s must be run within a transaction", r.name)
		}
		return run()
	}
	if r.lsid == nil {
		return nil, mongoerr.New(mongoerr.InvalidOptions, "Transaction number requires a session ID to also be specified")
	}
	s, err := t.checkout(ctx, r.lsid)
	if err != nil {
		return nil, err
	}
	defer func() { <-s.busy }()
	if r.number < s.number {
		return nil, mongoerr.New(mongoerr.TransactionTooOld, "Cannot start transaction with { txnNumber: %d } on session because a newer transaction with txnNumber %d has already started on this session.", r.number, s.number)
	}
	if r.multi {
		return t.statement(ctx, s, r, run)
	}
	if r.cmd.retryable && r.db == "local" {
		return nil, mongoerr.New(mongoerr.IllegalOperation, "Transaction numbers are only allowed on a replica set member or mongos, and not for the local database")
	}
	if !r.cmd.retryable {
		return nil, mongoerr.New(50768, "txnNumber may only be provided for multi-document transactions and retryable write commands. autocommit:false was not provided, and %s is not a retryable write command.", r.name)
	}
	if r.number > s.number {
		t.begin(s, r.number)
	}
	if s.state != noTxn {
		return nil, mongoerr.New(mongoerr.IncompleteHistory, "txnNumber %d is the number of a transaction", r.number)
	}
	if s.reply != nil {
		if s.write != r.name {
			return nil, mongoerr.New(mongoerr.InvalidOptions, "txnNumber %d was used by %s", r.number, s.write)
		}
		return s.reply, nil
	}
	r.session = s
	reply, err := run()
	if err == nil {
		s.reply, s.done, s.write = reply, nil, r.name
	}
	return reply, err
}

// begin makes a number the session's current one and forgets what was before.
func (t *sessions) begin(s *session, number int64) {
	if s.state == inProgress {
		t.eng.Abort(s.txn)
	}
	s.number, s.reply, s.done, s.txn, s.state = number, nil, nil, nil, noTxn
}

func (t *sessions) statement(ctx context.Context, s *session, r *request, run func() (bson.D, error)) (bson.D, error) {
	if err := r.inTransaction(); err != nil {
		return nil, err
	}
	if start, _ := r.get("startTransaction").(bool); start {
		if r.number == s.number {
			return nil, mongoerr.New(mongoerr.ConflictingOperation, "Cannot start a transaction at given transaction number %d as a transaction with the same number is in state %d", r.number, s.state)
		}
		if !r.cmd.inTxn || r.cmd.finishes || r.name == "killCursors" {
			return nil, mongoerr.New(mongoerr.OperationNotInTransaction, "Cannot run '%s' in a multi-document transaction.", r.name)
		}
		t.begin(s, r.number)
		s.txn, s.state = t.eng.Begin(r.lsid, r.number, r.srv.opts.TransactionLifetime), inProgress
		s.open = open{began: time.Now(), client: r.conn.net.RemoteAddr().String(), app: r.conn.app}
		concern, _ := r.get("readConcern").(bson.D)
		s.txn.Strict = field(concern, "level") == "snapshot"
	} else if r.number != s.number || s.state == noTxn {
		return nil, mongoerr.New(mongoerr.NoSuchTransaction, "Given transaction number %d does not match any in-progress transactions. The active transaction number is %d", r.number, s.number)
	}
	if s.state == inProgress && !t.eng.Open(s.txn) {
		s.state = aborted // by its lifetime or a step-down
	}
	if r.cmd.finishes {
		return t.end(s, r)
	}
	switch s.state {
	case committed:
		return nil, mongoerr.New(mongoerr.TransactionCommitted, "Transaction with { txnNumber: %d } has been committed.", r.number)
	case aborted:
		return nil, engine.Aborted(r.number)
	default:
	}
	if !r.cmd.inTxn {
		return nil, mongoerr.New(mongoerr.OperationNotInTransaction, "Cannot run '%s' in a multi-document transaction.", r.name)
	}
	r.txn, r.view = s.txn, engine.View{Txn: s.txn}
	began := time.Now()
	reply, err := run()
	s.open.used = time.Now()
	s.open.active += max(s.open.used.Sub(began), time.Microsecond)
	if err != nil || hasWriteErrors(reply) { // any failed statement ends the whole transaction
		t.eng.Abort(s.txn)
		s.state = aborted
	}
	return reply, err
}

// inTransaction refuses what a statement of a transaction must not contain.
func (r *request) inTransaction() error {
	start, _ := r.get("startTransaction").(bool)
	concern, _ := r.get("readConcern").(bson.D)
	level := field(concern, "level")
	switch {
	case r.cmd.finishes:
		return nil
	case r.has("writeConcern"):
		return mongoerr.New(mongoerr.InvalidOptions, "writeConcern is not allowed within a multi-statement transaction")
	case !start && len(concern) > 0:
		return mongoerr.New(mongoerr.InvalidOptions, "Only the first command in a transaction may specify a readConcern")
	case level == "available" || level == "linearizable":
		return mongoerr.New(mongoerr.InvalidOptions, "readConcern level %v is not allowed in a transaction", level)
	case (r.db == "admin" && r.name != "bulkWrite" && r.name != "getMore" && r.name != "killCursors") || r.db == "config" || r.db == "local":
		return mongoerr.New(mongoerr.OperationNotInTransaction, "Cannot run command against the '%s' database in a transaction.", r.db)
	}
	return nil
}

func (t *sessions) end(s *session, r *request) (bson.D, error) {
	if r.db != "admin" {
		return nil, mongoerr.New(mongoerr.Unauthorized, "%s may only be run against the admin database.", r.name)
	}
	gone := engine.Aborted(r.number)
	if r.name == "abortTransaction" {
		switch s.state {
		case committed:
			return nil, mongoerr.New(mongoerr.TransactionCommitted, "Transaction with { txnNumber: %d } has been committed.", r.number)
		case aborted:
			return nil, gone
		default:
		}
		t.eng.Abort(s.txn)
		s.state = aborted
		return bson.D{}, nil
	}
	switch s.state {
	case committed: // a retry
		return bson.D{}, nil
	case aborted:
		return nil, gone
	default:
	}
	if err := t.eng.Commit(s.txn); err != nil {
		s.state = aborted
		return nil, err
	}
	s.state = committed
	return bson.D{}, nil
}

// drop ends sessions: their transactions are aborted, their memory is gone.
func (t *sessions) drop(lsid bson.Raw) {
	t.mu.Lock()
	s := t.all[string(lsid)]
	delete(t.all, string(lsid))
	t.mu.Unlock()
	if s == nil {
		return
	}
	select {
	case s.busy <- struct{}{}:
		if s.state == inProgress {
			t.eng.Abort(s.txn)
			s.state = aborted
		}
		<-s.busy
	default: // a command is running; its transaction ends by its lifetime
	}
}
