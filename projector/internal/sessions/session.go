package sessions

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

// ErrRelease means that the session should be released: it is idle, it was held long enough while
// others may be waiting, or its link is no longer usable. It is not a failure.
var ErrRelease = errors.New("session is to be released")

// ErrLockLost is the cause with which a handler is cancelled when its session's lock could not be
// renewed.
var ErrLockLost = errors.New("session lock is lost")

// errNoSession means that no session is waiting.
var errNoSession = errors.New("no session is waiting")

// Session is an accepted session. One goroutine uses it; the renewer beside it uses only the lock.
type Session struct {
	pool     *Pool
	link     link
	end      func(ctx context.Context) // releases what the link was opened on
	accepted time.Time
	overlaps bool          // its release may overlap the accept of another session
	received bool          // messages were received
	hasSlot  bool          // it is being handled
	freed    chan struct{} // closed when its worker accepts another one; by the handler's goroutine alone
	detached bool          // freed is closed

	settling    sync.WaitGroup // a batch that is settled while the next one is received and applied
	settlingErr error          // read after settling is done
}

// ID returns the session's id.
func (s *Session) ID() string { return s.link.ID() }

// Settler returns the settler of this session's messages.
func (s *Session) Settler() Settler { return s.link }

// Settle runs send in the background. The caller has waited with Settled for the one before. The
// session is released after send has returned, and an error of it is then logged.
func (s *Session) Settle(send func() error) {
	s.settling.Go(func() { s.settlingErr = send() })
}

// Settled waits until no send is under way and returns the error of the last one, once.
func (s *Session) Settled() error {
	s.settling.Wait()
	err := s.settlingErr
	s.settlingErr = nil
	return err
}

// Receive returns the session's next messages, in order, at least one, or [ErrRelease].
func (s *Session) Receive(ctx context.Context) (messages []*azservicebus.ReceivedMessage, err error) {
	defer func() { s.received = s.received || len(messages) > 0 }()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx) // messages that have arrived are released with the session
	}
	if s.pool.contended() && time.Since(s.accepted) >= s.pool.opts.MaxHold {
		if messages := s.link.Buffered(s.pool.opts.Batch); len(messages) > 0 {
			return messages, nil // otherwise they were sent without effect, and are sent again
		}
		return nil, ErrRelease
	}
	messages, err = s.link.TryNext(ctx, s.pool.opts.Batch)
	if len(messages) > 0 || err != nil {
		return messages, err
	}
	idle, stop, ok := s.pool.idle(ctx)
	if !ok {
		return nil, ErrRelease
	}
	defer stop()
	messages, err = s.link.Next(idle, s.pool.opts.Batch)
	if err != nil && idle.Err() != nil && ctx.Err() == nil {
		return nil, ErrRelease
	}
	return messages, err
}

// TryReceive returns messages that are known to have arrived behind those that the caller holds, up
// to a batch; none if none are known.
func (s *Session) TryReceive(ctx context.Context) ([]*azservicebus.ReceivedMessage, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return s.link.TryNext(ctx, s.pool.opts.Batch)
}

// ReceiveWithin waits for d, or until messages arrive, if the caller has room for more. It returns
// the messages, or none if the time is over. Other sessions are handled meanwhile. bytes is the
// size of the messages that the caller holds. Errors: [ErrRelease], or the cause of ctx.
func (s *Session) ReceiveWithin(ctx context.Context, d time.Duration, bytes int, room bool) (messages []*azservicebus.ReceivedMessage, err error) {
	aside, broken := true, error(nil)
	err = s.Yield(ctx, bytes, func(free bool) {
		if aside = free; !aside {
			d = min(d, maxBusyWait)
		}
		waiting, cancel := context.WithTimeout(ctx, d)
		defer cancel()
		if !room {
			<-waiting.Done()
			return
		}
		messages, broken = s.link.Next(waiting, s.pool.opts.Batch)
		if broken != nil && waiting.Err() != nil {
			broken = nil
		}
	})
	switch {
	case err != nil:
		return nil, err
	case broken != nil:
		return nil, broken
	case len(messages) == 0 && !aside:
		return nil, ErrRelease
	}
	return messages, nil
}

// maxBusyWait bounds a wait that occupies a worker, because too many sessions wait already.
const maxBusyWait = 2 * time.Second

// Yield calls wait, which only waits, while other sessions are handled: the session gives up its
// slot and its worker, and acquires a slot again afterwards. bytes is the size of the messages that
// the caller holds. If too many sessions wait, or hold too many bytes, the session keeps its slot;
// wait is called with whether it gave it up. The error is the cause of ctx.
func (s *Session) Yield(ctx context.Context, bytes int, wait func(free bool)) error {
	p := s.pool
	p.mu.Lock()
	free := p.aside < maxAside && (p.opts.Bytes == 0 || p.asideBytes+bytes <= p.opts.Bytes/2)
	if free {
		p.aside, p.asideBytes = p.aside+1, p.asideBytes+bytes
	}
	p.mu.Unlock()
	if !free {
		wait(false)
		return context.Cause(ctx)
	}
	s.releaseSlot()
	wait(true)
	p.mu.Lock()
	p.aside, p.asideBytes = p.aside-1, p.asideBytes-bytes
	p.mu.Unlock()
	return s.acquireSlot(ctx)
}

// acquireSlot waits until the session may be handled. The error is the cause of ctx, which is
// checked even if a slot is free: a handler that waits repeatedly must see that it is to stop.
func (s *Session) acquireSlot(ctx context.Context) error {
	p := s.pool
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	select {
	case p.slots <- struct{}{}:
	default:
		p.mu.Lock()
		p.queued++
		p.wakeOldest()
		p.mu.Unlock()
		defer func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.queued--
		}()
		select {
		case p.slots <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	s.hasSlot = true
	return nil
}

// releaseSlot lets another session be handled, and the worker that accepted this one accept
// another.
func (s *Session) releaseSlot() {
	if s.hasSlot {
		<-s.pool.slots
		s.hasSlot = false
	}
	if !s.detached {
		close(s.freed)
		s.detached = true
	}
}

// Age returns how long ago the session was accepted.
func (s *Session) Age() time.Duration { return time.Since(s.accepted) }

// Budget returns how many messages of the recent size, of at most count, a worker has memory for
// besides those that are on their way.
func (s *Session) Budget(count int) int { return s.pool.budget.allow(count) }

// A lock ends by the broker's clock, and ours may differ by more than the lock lasts. So the
// remaining time determines how often it is renewed only within these bounds. The shortest lock of
// the service is 5 s.
const (
	minRenewal = 2500 * time.Millisecond
	maxRenewal = 20 * time.Second
)

// renewal returns how long to wait between renewals: half of the lock's remaining time, within
// bounds.
func renewal(remaining time.Duration) time.Duration {
	return min(max(remaining/2, minRenewal), maxRenewal)
}

// renew keeps the session's lock until ctx ends. After a renewal that fails, or takes longer than
// the interval between renewals, the lock must be taken for lost: the error wraps ErrLockLost.
func (s *Session) renew(ctx context.Context, every time.Duration) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		call, cancel := context.WithTimeout(ctx, every)
		err := s.link.Renew(call)
		cancel()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%w: renew: %w", ErrLockLost, err)
		}
	}
}
