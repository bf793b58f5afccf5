package sessions

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

// ErrRelease means that the session should be released: it is idle, it was held long enough while others may be
// waiting, or its link is no longer good. It is no failure.
var ErrRelease = errors.New("session is to be released")

// ErrLockLost is the cause with which a handler is cancelled when its session's lock could not be renewed.
var ErrLockLost = errors.New("session lock is lost")

// errNoSession means that none was there.
var errNoSession = errors.New("no session is waiting")

// Session is an accepted session. One goroutine uses it; the renewer beside it touches the lock alone.
type Session struct {
	pool     *Pool
	link     link
	end      func(ctx context.Context) // of what the link was opened on
	accepted time.Time
	overlaps bool          // its release may, with the accept of another one
	settling func() error  // what the release waits for; nil: nothing
	hasSlot  bool          // it is one of those that are handled
	freed    chan struct{} // closed when its worker accepts another one; by the handler's goroutine alone
	detached bool          // freed is closed
}

// ID is the session's id.
func (s *Session) ID() string { return s.link.ID() }

// ReleaseAfter says that the handler is about to return ErrRelease, and that the session is to be released when settling has returned. Where
// that is refused the handler waits for it.
func (s *Session) ReleaseAfter(settling func() error) bool {
	if s.overlaps {
		s.settling = settling
	}
	return s.overlaps
}

// Settler settles this session's messages.
func (s *Session) Settler() Settler { return s.link }

// Receive returns the session's next messages, in order, at least one, or [ErrRelease].
func (s *Session) Receive(ctx context.Context) ([]*azservicebus.ReceivedMessage, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx) // what has arrived already is released with the session
	}
	if s.pool.contended() && time.Since(s.accepted) >= s.pool.opts.MaxHold {
		if messages := s.link.Buffered(s.pool.opts.Batch); len(messages) > 0 {
			return messages, nil // else it was sent in vain, and is sent again
		}
		return nil, ErrRelease
	}
	messages, err := s.link.TryNext(ctx, s.pool.opts.Batch)
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

// TryReceive returns messages that are known to be there behind those that the caller keeps in hand, up to a batch; none if none are known.
func (s *Session) TryReceive(ctx context.Context) ([]*azservicebus.ReceivedMessage, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return s.link.TryNext(ctx, s.pool.opts.Batch)
}

// ReceiveWithin waits for d, or until messages are there, if the caller has room for more. It returns them; none when the time is over. Other
// sessions are handled meanwhile; bytes are of messages that the caller keeps in hand. Errors: [ErrRelease], or the cause of ctx.
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

// Yield runs wait, which only waits, while other sessions are handled: the session gives up its worker, and takes its turn again
// afterwards. bytes are of messages that the caller keeps in hand. If too many sessions wait, or they have too much in hand, the session keeps its worker; wait
// is called with whether it has not. The error is the cause of ctx.
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

// acquireSlot waits until the session may be handled. The error is the cause of ctx, which is checked even if nothing has to be waited
// for: a handler that waits again and again must see that it is to stop.
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

// releaseSlot lets another session be handled, and the worker that accepted this one accept another.
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

// Age is how long ago the session was accepted.
func (s *Session) Age() time.Duration { return time.Since(s.accepted) }

// Budget is how many messages of the recent ones' size, of at most count, a worker has room for besides those that are on their way.
func (s *Session) Budget(count int) int { return s.pool.budget.allow(count) }

// The end of a lock is by the broker's clock, and ours may differ, by more than the lock lasts. So how long is left decides how often it is
// renewed only between these bounds. The shortest lock of the service is 5 s.
const (
	minRenewal = 2500 * time.Millisecond
	maxRenewal = 20 * time.Second
)

// renewal returns how long to wait between renewals: half of the lock's remaining time, within bounds.
func renewal(remaining time.Duration) time.Duration {
	return min(max(remaining/2, minRenewal), maxRenewal)
}

// renew keeps the session's lock until ctx ends. A renewal that fails, or takes longer than a renewal's interval, is the
// end of the lock as far as we can know: the error wraps ErrLockLost.
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
