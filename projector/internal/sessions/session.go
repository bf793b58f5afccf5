package sessions

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/sluice-cdc/sluice/projector/internal/settle"
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
	overlaps bool         // its release may, with the accept of another one
	settling func() error // what the release waits for; nil: nothing
}

// ID is the session's id.
func (s *Session) ID() string { return s.link.ID() }

// Leave says that the handler is about to return ErrRelease, and that the session is to be released when settling has returned. Where
// that is refused the handler waits for it.
func (s *Session) Leave(settling func() error) bool {
	if s.overlaps {
		s.settling = settling
	}
	return s.overlaps
}

// Settler settles this session's messages.
func (s *Session) Settler() settle.Receiver { return s.link }

// Receive returns the session's next messages, in order, at least one, or [ErrRelease].
func (s *Session) Receive(ctx context.Context) ([]*azservicebus.ReceivedMessage, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx) // what has arrived already is released with the session
	}
	if s.pool.contended() && time.Since(s.accepted) >= s.pool.opts.MaxHold {
		return nil, ErrRelease
	}
	messages, err := s.link.Known(ctx, s.pool.opts.Batch)
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

// Gather adds to received messages those that are there as well, up to a batch, and waits shortly for them: for whoever must
// see together what belongs together.
func (s *Session) Gather(ctx context.Context, messages []*azservicebus.ReceivedMessage) []*azservicebus.ReceivedMessage {
	return append(messages, s.link.More(ctx, s.pool.opts.Batch-len(messages))...)
}

// Behind returns messages that are there behind those that the caller keeps in hand, up to a batch: none where there are none, or
// others should have the session.
func (s *Session) Behind(ctx context.Context) []*azservicebus.ReceivedMessage {
	if ctx.Err() != nil || s.pool.contended() && time.Since(s.accepted) >= s.pool.opts.MaxHold {
		return nil
	}
	return s.link.More(ctx, s.pool.opts.Batch)
}

// Room is how many messages of the recent ones' size, of at most count, a worker has room for besides those that are on their way.
func (s *Session) Room(count int) int { return s.pool.room.messages(count) }

// renewal is how long to wait between renewals: half of the lock's remaining time, at most maxRenewal, because the time it
// ends at is by the broker's clock, and ours may differ.
const (
	minRenewal = 500 * time.Millisecond
	maxRenewal = 20 * time.Second
)

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
