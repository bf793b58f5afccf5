package apply

import (
	"context"
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
	left  atomic.Int64  // transactions until they are no longer expected to meet
}

const (
	// courtesy is how long a transaction waits while nobody gets a turn.
	courtesy = 250 * time.Millisecond
	// caution is how many transactions go one after the other once two have met.
	caution = 64
)

func newTurns() *turns { return &turns{one: make(chan struct{}, 1)} }

// take waits for a turn, where transactions have met lately. done gives it back.
func (t *turns) take(ctx context.Context) (done func()) {
	if t.left.Load() <= 0 {
		return func() {}
	}
	t.left.Add(-1)
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

// met records that two transactions wrote the same document.
func (t *turns) met() { t.left.Store(caution) }
