package apply

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// conflictQueue makes transactions of this process that write the same documents wait for each
// other, instead of being refused and started again, as long as any two of them conflict. It does
// not know the transactions of other processes.
//
// This is only an optimisation. A transaction waits at most maxWait for a queue that does not move.
type conflictQueue struct {
	slot   chan struct{} // holds a value while a transaction has its turn
	served atomic.Int64  // turns that were given

	mu        sync.Mutex
	lot       int // transactions that wait for each other after a conflict
	remaining int // of these; below zero, how many have not waited since
}

const (
	// maxWait bounds the wait while the queue does not move.
	maxWait = 250 * time.Millisecond
	// minLot is for transactions that conflicted by chance, such as those that begin while a
	// collection is created. maxLot is for documents that many of them write to: in each lot that
	// does not wait, only one transaction keeps its work.
	minLot, maxLot = 4, 64
)

func newConflictQueue() *conflictQueue { return &conflictQueue{slot: make(chan struct{}, 1)} }

// enter waits for a turn if transactions have conflicted recently. done ends the turn.
func (q *conflictQueue) enter(ctx context.Context) (done func()) {
	if !q.mustWait() {
		return func() {}
	}
	line := time.NewTicker(maxWait)
	defer line.Stop()
	for given := q.served.Load(); ; {
		select {
		case q.slot <- struct{}{}:
			q.served.Add(1)
			return func() { <-q.slot }
		case <-line.C:
			now := q.served.Load()
			if now == given {
				return func() {}
			}
			given = now
		case <-ctx.Done():
			return func() {}
		}
	}
}

// mustWait counts a transaction, and reports whether it is one of a lot that waits.
func (q *conflictQueue) mustWait() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.remaining--
	return q.remaining >= 0
}

// conflicted records that two transactions wrote the same document. If the previous lot has waited
// recently, the next one is twice as large.
func (q *conflictQueue) conflicted() {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.remaining > 0: // those that had begun before
	case q.lot > 0 && -q.remaining <= maxLot:
		q.lot = min(2*q.lot, maxLot)
	default:
		q.lot = minLot
	}
	q.remaining = q.lot
}
