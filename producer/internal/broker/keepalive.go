package broker

import (
	"context"
	"time"

	"github.com/sluice-cdc/sluice/shared/retry"
)

// idleCheckInterval is how long a link may go without a send before it is replaced. Service Bus
// detaches a link that is idle for ten minutes.
const idleCheckInterval = 5 * time.Minute

// KeepOpen keeps a link open until ctx ends, whether or not anything is sent. It calls report after
// each attempt to open one, with nil on success. A link that was idle for a while is replaced
// before the service detaches it.
func (s *ServiceBus) KeepOpen(ctx context.Context, report func(error)) {
	backoff := retry.Backoff{Initial: 100 * time.Millisecond, Max: 10 * time.Second}
	for ctx.Err() == nil {
		c, err := s.connect(ctx)
		if ctx.Err() != nil {
			return
		}
		report(err)
		if err != nil {
			if backoff.Wait(ctx) != nil {
				return
			}
			continue
		}
		opened := time.Now()
		s.watch(ctx, c)
		if time.Since(opened) > backoff.Max {
			backoff.Reset()
		} else if backoff.Wait(ctx) != nil { // the link was closed soon after it was opened
			return
		}
	}
}

// watch returns when the connection must not be used any more, or when ctx ends.
func (s *ServiceBus) watch(ctx context.Context, c *connection) {
	idle := time.NewTicker(idleCheckInterval)
	defer idle.Stop()
	for s.current.Load() == c {
		select {
		case <-ctx.Done():
			return
		case <-c.Done():
			s.abandon(ctx, c)
			return
		case <-idle.C:
			if !c.used.Swap(false) && s.replaceIdle(ctx, c) {
				return
			}
		}
	}
}

// replaceIdle replaces an idle connection with a new one, without a gap between the two.
func (s *ServiceBus) replaceIdle(ctx context.Context, c *connection) (replaced bool) {
	dialing, cancel := context.WithTimeout(ctx, maxDialTimeout)
	defer cancel()
	fresh, err := s.dial(dialing)
	if err != nil {
		return false // the old connection may still work, and is checked again later
	}
	if c.used.Load() || !s.current.CompareAndSwap(c, fresh) {
		s.close(ctx, fresh)
		return false
	}
	s.close(ctx, c)
	return true
}
