package publish

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-cdc/sluice/producer/internal/broker"
	"github.com/sluice-cdc/sluice/shared/retry"
)

// sendTimeout is the minimum time that an attempt of any lane may take. It starts at zero: an
// attempt then times out at the fence as of its start, so that a dead connection is soon replaced.
// A large message on a slow line needs longer, and heartbeats keep extending the fence. So the
// timeout doubles when a send times out, and shrinks when sends are fast again. The zero value is
// ready to use.
type sendTimeout struct{ nanoseconds atomic.Int64 }

// maxSendTimeout is how long go-amqp keeps a connection on which nothing arrives.
const maxSendTimeout = time.Minute

func (p *sendTimeout) current() time.Duration { return time.Duration(p.nanoseconds.Load()) }

// adjust adjusts the timeout after an attempt that had this much time and took that much of it.
// Only sends change it.
func (p *sendTimeout) adjust(had, took time.Duration, err error, timedOut bool) {
	now := p.nanoseconds.Load()
	switch {
	case err == nil && 4*took < time.Duration(now):
		p.nanoseconds.CompareAndSwap(now, now-now/8)
	case timedOut && errors.Is(err, broker.ErrUnknown) && 2*had > time.Duration(now):
		p.nanoseconds.CompareAndSwap(now, int64(min(2*had, maxSendTimeout)))
	}
}

// withFence runs one attempt. The attempt times out at the current fence or after sendTimeout,
// whichever is later, but never outlives the fence as later heartbeats extend it.
func (p *Publisher) withFence(ctx context.Context, attempt func(context.Context) error) error {
	begun := time.Now()
	left := p.fence.Deadline().Sub(begun)
	if left <= 0 {
		return errFencePassed
	}
	had := max(left, p.sendTimeout.current())
	within, cancel := context.WithTimeout(ctx, had)
	defer cancel()
	if had > left {
		defer p.cancelAtFence(within, cancel)()
	}
	err := attempt(within)
	timedOut := ctx.Err() == nil && errors.Is(within.Err(), context.DeadlineExceeded)
	p.sendTimeout.adjust(had, time.Since(begun), err, timedOut)
	return err
}

// cancelAtFence cancels an attempt at the fence, as extended meanwhile. stop ends the watch.
func (p *Publisher) cancelAtFence(ctx context.Context, cancel context.CancelFunc) (stop func()) {
	var guarding sync.WaitGroup
	guarding.Go(func() {
		defer cancel()
		for left := time.Until(p.fence.Deadline()); left > 0; left = time.Until(p.fence.Deadline()) {
			if retry.Sleep(ctx, left) != nil {
				return
			}
		}
	})
	return func() {
		cancel()
		guarding.Wait()
	}
}
