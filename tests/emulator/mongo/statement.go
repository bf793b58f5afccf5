package mongo

import (
	"context"
	"errors"
	"sync"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/engine"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/mongoerr"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/value"
)

// A retried write may have been cut off half-way: its session remembers what each
// statement did, and a statement that took effect is not run again.

// once runs a statement of a command, unless an earlier attempt of the same
// retryable write has run it.
func once[T any](r *request, statement int, run func() (T, error)) (T, error) {
	if r.session == nil {
		return run()
	}
	var none T
	if r.ran(statement) {
		if done, ok := r.session.done[statement].(T); ok {
			return done, nil
		}
		return none, mongoerr.New(mongoerr.InvalidOptions, "statement %d of txnNumber %d was another one at the first attempt", statement, r.number)
	}
	point := r.srv.fail.transactional.hit()
	if point != nil && point.code != 0 {
		if point.closes {
			return none, errCloseConnection
		}
		return none, mongoerr.New(point.code, "Failing write for fail point onPrimaryTransactionalWrite before commit")
	}
	res, err := run()
	if err == nil {
		r.did(statement, res)
	}
	if point != nil && point.closes {
		return none, errCloseConnection
	}
	return res, err
}

// did remembers the result of a statement that took effect.
func (r *request) did(statement int, result any) {
	if r.session == nil {
		return
	}
	if missing := statement + 1 - len(r.session.done); missing > 0 {
		r.session.done = append(r.session.done, make([]any, missing)...)
	}
	r.session.done[statement] = result
}

// ran reports whether an earlier attempt ran a statement.
func (r *request) ran(statement int) bool {
	return r.session != nil && statement < len(r.session.done) && r.session.done[statement] != nil
}

// insertAll inserts documents whose statement numbers are in index.
func (r *request) insertAll(ctx context.Context, ns engine.NS, docs []bson.Raw, index []int, failed func(i int, err error)) (int, error) {
	if r.session == nil || !r.srv.fail.transactional.armed() {
		return r.srv.eng.Insert(ctx, ns, r.txn, docs, r.ordered(), func(i int, err error) {
			if err != nil {
				failed(i, err)
				return
			}
			r.did(index[i], inserted{})
		})
	}
	n := 0
	for i := range docs { // the fail point strikes between two
		stop := false
		_, err := once(r, index[i], func() (inserted, error) {
			var outcome error
			_, err := r.srv.eng.Insert(ctx, ns, r.txn, docs[i:i+1], true, func(_ int, err error) { outcome = err })
			if err == nil && outcome != nil {
				failed(i, outcome)
				stop = r.ordered()
			}
			return inserted{}, errors.Join(err, outcome)
		})
		if err == nil {
			n++
		} else if !stop && fatal(ctx, r, err) {
			return n, err
		}
		if stop {
			break
		}
	}
	return n, nil
}

// inserted is the result of a statement that inserts.
type inserted struct{}

// transactional is the fail point onPrimaryTransactionalWrite: it strikes at single
// statements of retryable writes.
type transactional struct {
	mu    sync.Mutex
	point *transactionalPoint // nil: off
	times int64               // left; negative: without end
	skip  int64               // left
}

type transactionalPoint struct {
	code   int32 // not 0: instead of taking effect the statement fails with it
	closes bool  // the connection is closed instead of a reply
}

func (t *transactional) armed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.point != nil
}

func (t *transactional) hit() *transactionalPoint {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.point == nil || t.times == 0:
		return nil
	case t.skip > 0:
		t.skip--
		return nil
	case t.times > 0:
		t.times--
	}
	return t.point
}

// configureTransactional reads the point's data: closeConnection, true if not
// given, and failBeforeCommitExceptionCode.
func (r *request) configureTransactional() (bson.D, error) {
	times, skip, off, err := r.failMode()
	if err != nil {
		return nil, err
	}
	data, err := r.doc("data")
	if err != nil {
		return nil, err
	}
	p := &transactionalPoint{closes: true}
	for _, e := range data {
		code, isInt := value.AsInt(e.Value)
		switch {
		case e.Key == "closeConnection":
			p.closes = e.Value == true
		case e.Key == "failBeforeCommitExceptionCode" && isInt:
			p.code = int32(code)
		default:
			return nil, mongoerr.Unsupported("the onPrimaryTransactionalWrite option %q", e.Key)
		}
	}
	if off {
		p = nil
	}
	r.srv.fail.transactional.set(p, times, skip)
	return bson.D{}, nil
}

func (t *transactional) set(p *transactionalPoint, times, skip int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.point, t.times, t.skip = p, times, skip
}
