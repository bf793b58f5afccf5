package sessions

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/sluice-cdc/sluice/projector/internal/held"
	"github.com/sluice-cdc/sluice/projector/internal/settle"
)

// ErrRelease means that the session should be released: it is idle, it was held long enough while others may be
// waiting, or its link is no longer good. It is no failure.
var ErrRelease = errors.New("session is to be released")

// ErrLockLost is the cause with which a handler is cancelled when its session's lock could not be renewed.
var ErrLockLost = errors.New("session lock is lost")

// gather is how long a receive may wait for messages that are known to be there, to the first and from it to the last.
// Reached only when one of them expired.
const gather = 2 * time.Second

// Session is an accepted session. One goroutine uses it; the renewer beside it touches the lock alone.
type Session struct {
	pool     *Pool
	client   *client
	receiver *held.Session
	accepted time.Time

	// last is the highest sequence number received; 0 before the first.
	last int64
	// known is how many messages are there and not yet received, as far as we know.
	known   int
	outlook outlook
	// open says that the link may still owe us messages that we asked for and did not get. See Receive.
	open bool
}

// ID is the session's id.
func (s *Session) ID() string { return s.receiver.ID() }

// Settler settles this session's messages.
func (s *Session) Settler() settle.Receiver { return s.receiver }

// Receive returns the session's next messages, in order, at least one, or [ErrRelease].
//
// It never asks for more than is known to be there. The SDK leaves the credit of a receive that came back with fewer
// messages standing, and until the next receive it hands back whatever arrives on it; the broker then delivers those
// messages again, behind later ones. A session would lose its order, and the guard would take the message that comes
// late for a duplicate. So the credit is always one of these:
//   - one, for the message that the session was accepted for,
//   - as many as a peek saw waiting, which locks and credits nothing,
//   - one, to wait for the next message.
//
// A link on which a receive came back short still has credit standing, and is not received from again.
func (s *Session) Receive(ctx context.Context) ([]*azservicebus.ReceivedMessage, error) {
	switch {
	case s.open:
		return nil, ErrRelease
	case s.pool.contended() && time.Since(s.accepted) >= s.pool.opts.MaxHold:
		return nil, ErrRelease
	}
	if s.known == 0 {
		if err := s.look(ctx); err != nil {
			return nil, err
		}
	}
	if s.known > 0 {
		bounded, cancel := context.WithTimeout(ctx, gather)
		defer cancel()
		messages, err := s.receive(bounded, min(s.known, s.pool.opts.Batch))
		s.known -= len(messages)
		if err != nil && bounded.Err() != nil && ctx.Err() == nil {
			return nil, ErrRelease
		}
		return messages, err
	}
	idle, stop, ok := s.pool.idle(ctx)
	if !ok {
		return nil, ErrRelease
	}
	defer stop()
	messages, err := s.receive(idle, 1)
	if err != nil && idle.Err() != nil && ctx.Err() == nil {
		return nil, ErrRelease
	}
	return messages, err
}

// look finds out what is there, where that pays. The broker grants sessions that have a message: that one is known.
func (s *Session) look(ctx context.Context) error {
	first := s.last == 0
	expected := 0
	if first {
		expected = 1
		due := false
		if due, s.outlook = s.pool.prospect(); !due {
			s.known = expected
			return nil
		}
	} else if !s.outlook.due() {
		return nil
	}
	var err error
	if s.known, err = s.waiting(ctx); err != nil {
		return err
	}
	s.outlook.saw(s.known > expected)
	if first {
		s.known = max(s.known, expected)
		s.pool.found(s.known > expected)
	}
	return nil
}

// waiting counts the messages of this session that are ready to be received, up to a batch, but at least two: one is no
// news of a session that was just accepted.
func (s *Session) waiting(ctx context.Context) (int, error) {
	if s.pool.blind.Load() {
		return 0, nil
	}
	from := s.last + 1
	peeked, err := s.receiver.PeekMessages(ctx, max(s.pool.opts.Batch, 2), &azservicebus.PeekMessagesOptions{FromSequenceNumber: &from})
	if err != nil {
		if ctx.Err() == nil {
			s.pool.peeked(err)
		}
		return 0, fmt.Errorf("peek session: %w", err)
	}
	s.pool.peeked(nil)
	count := 0
	for _, m := range peeked {
		// A peek of the whole entity would show other sessions' messages too; those and deferred ones do not come.
		if m.SessionID != nil && *m.SessionID == s.ID() && m.State == azservicebus.MessageStateActive {
			count++
		}
	}
	return count, nil
}

func (s *Session) receive(ctx context.Context, count int) ([]*azservicebus.ReceivedMessage, error) {
	messages, err := s.receiver.ReceiveMessages(ctx, count, &azservicebus.ReceiveMessagesOptions{TimeAfterFirstMessage: gather})
	s.open = len(messages) < count
	for _, m := range messages {
		if m.SequenceNumber != nil {
			s.last = max(s.last, *m.SequenceNumber)
		}
	}
	switch {
	case len(messages) > 0:
		return messages, nil
	case errors.Is(err, held.ErrBroken): // whoever broke it says why
		return nil, ErrRelease
	case err != nil:
		return nil, fmt.Errorf("receive messages: %w", err)
	}
	// (nil, nil): the link went away, perhaps with the lock. The SDK would silently accept the session again.
	return nil, ErrRelease
}

// renewal is how long to wait between renewals: half of the lock's remaining time, at most maxRenewal, because the time it
// ends at is told by the broker's clock and ours may differ.
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
		err := s.receiver.Renew(call)
		cancel()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%w: renew: %w", ErrLockLost, err)
		}
	}
}
