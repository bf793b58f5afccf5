package sessions

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/sluice-cdc/sluice/shared/retry"
	"github.com/sluice-cdc/sluice/shared/servicebus"
)

// throttle spaces the accepts of all workers while the broker answers that it is busy: one begins
// after each pause, and the pauses grow. Refused requests would keep a throttled namespace busy.
type throttle struct {
	mu      sync.Mutex // guards everything below
	backoff retry.Backoff
	pause   time.Duration
	next    time.Time     // when the next accept may begin
	refused time.Time     // when the pause last grew
	over    chan struct{} // closed when the broker is no longer busy; nil: it is not busy
}

func newThrottle() *throttle {
	return &throttle{backoff: retry.Backoff{Initial: 4 * time.Second, Max: 16 * time.Second}}
}

// wait waits until an accept may begin. The error is the cause of ctx.
func (t *throttle) wait(ctx context.Context) error {
	t.mu.Lock()
	over, at := t.over, t.next
	if over != nil {
		t.next = at.Add(t.pause)
	}
	t.mu.Unlock()
	if over == nil {
		return nil
	}
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-over:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// record records the outcome of an accept, and reports whether the broker is busy. Concurrent
// accepts count as one refusal.
func (t *throttle) record(began time.Time, err error) bool {
	answer, ok := errors.AsType[*amqp.Error](err)
	busy := ok && answer.Condition == servicebus.CondServerBusy
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case busy && (t.over == nil || began.After(t.refused)):
		if t.over == nil {
			t.over = make(chan struct{})
		}
		t.refused, t.pause = time.Now(), t.backoff.Next()
		if next := t.refused.Add(t.pause); next.After(t.next) {
			t.next = next // otherwise others wait for their turn already
		}
	case t.over != nil && began.After(t.refused) && (err == nil || errors.Is(err, errNoSession)):
		close(t.over)
		t.over, t.next = nil, time.Time{}
		t.backoff.Reset()
	}
	return busy
}
