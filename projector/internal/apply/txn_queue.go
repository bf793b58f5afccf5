package apply

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// turns lets transactions of this process that write the same documents go one after the other, instead of being refused, and made again
// from the start, as long as any two of them meet. Those of other processes are met all the same.
//
// It is a courtesy: nothing rests on it, and nobody waits in a line that has not moved for as long as courtesy. One that is stuck holds up
// nobody.
type turns struct {
	one   chan struct{} // holds a value while somebody has the turn
	given atomic.Int64  // turns

	mu      sync.Mutex
	caution int // transactions that go one after the other once two have met
	left    int // of these; below zero, how many have gone freely since
}

const (
	// courtesy is how long a transaction waits while nobody gets a turn.
	courtesy = 250 * time.Millisecond
	// leastCaution is for two that met by chance, as those do that begin while a collection is being made. mostCaution is for documents that
	// many of them write to: there each lot that goes freely costs all but one of it its work.
	leastCaution, mostCaution = 4, 64
)

func newTurns() *turns { return &turns{one: make(chan struct{}, 1)} }

// take waits for a turn, where transactions have met lately. done gives it back.
func (t *turns) take(ctx context.Context) (done func()) {
	if !t.cautious() {
		return func() {}
	}
	line := time.NewTicker(courtesy)
	defer line.Stop()
	for given := t.given.Load(); ; {
		select {
		case t.one <- struct{}{}:
			t.given.Add(1)
			return func() { <-t.one }
		case <-line.C:
			now := t.given.Load()
			if now == given {
				return func() {}
			}
			given = now
		case <-ctx.Done():
			return func() {}
		}
	}
}

// cautious counts a transaction, and says whether it is one of those that go one after the other.
func (t *turns) cautious() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.left--
	return t.left >= 0
}

// met records that two transactions wrote the same document. If the last lot went one after the other not long before, the next one is
// twice as large.
func (t *turns) met() {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.left > 0: // those that had begun before
	case t.caution > 0 && -t.left <= mostCaution:
		t.caution = min(2*t.caution, mostCaution)
	default:
		t.caution = leastCaution
	}
	t.left = t.caution
}
