package sessions

import (
	"context"
	"errors"
	"fmt"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

// sdkLink is a session that the SDK has accepted.
//
// It never asks for more messages than are known to be there. When a receive returns fewer messages
// than it asked for, the SDK leaves the rest of its credit standing, and releases whatever arrives
// before the next receive; the broker then delivers those messages again, behind later ones. The
// session would lose its order, and the guard would take the late message for a duplicate. So the
// credit is always one of these:
//   - one, for the message that the session was accepted for,
//   - as many as a peek saw waiting, which locks and credits nothing,
//   - one, to wait for the next message.
//
// A link on which a receive came back short still has credit standing, and is not received from
// again.
type sdkLink struct {
	*SDKSession
	backlog *backlogEstimate
	budget  *byteBudget

	// last is the highest sequence number received; 0 before the first.
	last int64
	// known is how many messages are there, as far as we know, and not yet received.
	known    int
	schedule peekSchedule
	// open is set while the link has unused credit: requested messages may still arrive.
	open bool
}

// Buffered implements link. The SDK receives nothing that was not asked for.
func (l *sdkLink) Buffered(int) []*azservicebus.ReceivedMessage { return nil }

// TryNext implements link.
func (l *sdkLink) TryNext(ctx context.Context, count int) ([]*azservicebus.ReceivedMessage, error) {
	if l.open {
		return nil, ErrRelease
	}
	if l.known == 0 {
		if err := l.peekAhead(ctx, count); err != nil {
			return nil, err
		}
	}
	if l.known == 0 {
		return nil, nil
	}
	bounded, cancel := context.WithTimeout(ctx, expectedWithin)
	defer cancel()
	messages, err := l.receive(bounded, min(l.known, count))
	l.known -= len(messages)
	if err != nil && bounded.Err() != nil && ctx.Err() == nil {
		return nil, ErrRelease
	}
	return messages, err
}

// Next implements link.
func (l *sdkLink) Next(ctx context.Context, _ int) ([]*azservicebus.ReceivedMessage, error) {
	if l.open {
		return nil, ErrRelease
	}
	return l.receive(ctx, 1)
}

// peekAhead finds out how many messages wait, if that pays. The broker grants sessions that have a
// message: that one is known.
func (l *sdkLink) peekAhead(ctx context.Context, count int) error {
	first := l.last == 0
	expected := 0
	if first {
		expected = 1
		due := false
		if due, l.schedule = l.backlog.shouldPeek(); !due {
			l.known = expected
			return nil
		}
	} else if !l.schedule.due() {
		return nil
	}
	var err error
	if l.known, err = l.waiting(ctx, count); err != nil {
		return err
	}
	l.schedule.observe(l.known > expected)
	if first {
		l.known = max(l.known, expected)
		l.backlog.found(l.known > expected)
	}
	return nil
}

// waiting counts the messages of this session that are ready to be received, up to a batch, but at
// least two: one is no news of a session that was just accepted.
func (l *sdkLink) waiting(ctx context.Context, batch int) (int, error) {
	if l.backlog.blind.Load() {
		return 0, nil
	}
	from := l.last + 1
	peeked, err := l.PeekMessages(ctx, max(l.budget.allow(batch), 2), &azservicebus.PeekMessagesOptions{FromSequenceNumber: &from})
	if err != nil {
		if ctx.Err() == nil {
			l.backlog.peeked(err)
		}
		return 0, fmt.Errorf("peek session: %w", err)
	}
	l.backlog.peeked(nil)
	count := 0
	for _, m := range peeked {
		// A peek of the whole entity would show other sessions' messages too; those and deferred
		// ones do not come.
		if m.SessionID != nil && *m.SessionID == l.ID() && m.State == azservicebus.MessageStateActive {
			count++
		}
	}
	return count, nil
}

func (l *sdkLink) receive(ctx context.Context, count int) ([]*azservicebus.ReceivedMessage, error) {
	messages, err := l.ReceiveMessages(ctx, count, &azservicebus.ReceiveMessagesOptions{TimeAfterFirstMessage: expectedWithin})
	l.open = len(messages) < count
	for _, m := range messages {
		l.budget.observe(len(m.Body))
		if m.SequenceNumber != nil {
			l.last = max(l.last, *m.SequenceNumber)
		}
	}
	switch {
	case len(messages) > 0:
		return messages, nil
	case errors.Is(err, ErrBroken): // the call that broke it reports why
		return nil, ErrRelease
	case err != nil:
		return nil, fmt.Errorf("receive messages: %w", err)
	}
	// (nil, nil): the link went away, perhaps with the lock. The SDK would silently accept the
	// session again.
	return nil, ErrRelease
}
