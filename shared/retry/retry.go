// Package retry waits between attempts: exponentially longer, at random so that replicas that
// failed together do not retry together, and never after the end of the context.
package retry

import (
	"cmp"
	"context"
	"math/rand/v2"
	"time"
)

// Backoff yields the waits of one run of failures. It is not safe for concurrent use; the zero
// value waits 100 ms first and 5 s at most.
type Backoff struct {
	Initial time.Duration // the first wait, before spreading; 0 means 100 ms
	Max     time.Duration // the longest wait, before spreading; 0 means 5 s

	attempts int
}

// Next returns the next wait: Initial × 2ⁿ up to Max, times a random factor in [0.5, 1).
func (b *Backoff) Next() time.Duration {
	wait, longest := cmp.Or(b.Initial, 100*time.Millisecond), cmp.Or(b.Max, 5*time.Second)
	for n := 0; n < b.attempts && wait < longest; n++ {
		wait *= 2
	}
	b.attempts++
	wait = min(wait, longest)
	return wait/2 + rand.N(wait/2+1)
}

// Attempts returns the number of waits taken since the start or the last Reset.
func (b *Backoff) Attempts() int { return b.attempts }

// Reset starts over after a success.
func (b *Backoff) Reset() { b.attempts = 0 }

// Wait sleeps for the duration that [Backoff.Next] returns. If ctx ends before, Wait returns its
// cause.
func (b *Backoff) Wait(ctx context.Context) error { return Sleep(ctx, b.Next()) }

// Sleep waits for d. It returns early, with the context's cause, when ctx ends.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
