package sessions

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/sluice-cdc/sluice/shared/servicebus"
)

// amqpAcceptor accepts sessions over AMQP, any number of them at once on its connection.
type amqpAcceptor struct {
	entity  string
	conns   *sharedConn[*servicebus.Conn]
	backlog *backlogEstimate
	budget  *byteBudget
}

func newAMQP(entity string, namespace *servicebus.Namespace, within time.Duration, backlog *backlogEstimate, budget *byteBudget) *amqpAcceptor {
	return &amqpAcceptor{entity: entity, backlog: backlog, budget: budget, conns: &sharedConn[*servicebus.Conn]{
		open:    namespace.Connect,
		alive:   func(c *servicebus.Conn) bool { return c.Err() == nil },
		shut:    func(ctx context.Context, c *servicebus.Conn) { c.Close(ctx) },
		within:  within,
		opening: make(chan struct{}, 1),
	}}
}

func (d *amqpAcceptor) accept(ctx context.Context) (link, func(context.Context), error) {
	conn, err := d.conns.acquire(ctx)
	if err != nil {
		return nil, nil, err
	}
	session, err := acceptNext(ctx, conn.way, d.entity)
	switch {
	case err == nil:
		session.Allow, session.Observe = d.budget.allow, d.budget.observe
		release := func(ctx context.Context) { conn.release(ctx, session.Doubtful()) }
		return &amqpLink{amqpSession: session, backlog: d.backlog}, release, nil
	case errors.Is(err, errNoSession):
		conn.release(ctx, false)
		return nil, nil, err
	}
	conn.release(ctx, !answered(err) && !errors.Is(err, context.Canceled))
	return nil, nil, err
}

func (d *amqpAcceptor) close(ctx context.Context) { d.conns.close(ctx) }

// amqpLink is a session to which the broker sends messages as long as it has credit.
type amqpLink struct {
	*amqpSession
	backlog *backlogEstimate
	begun   bool // something has been received
}

// burst is how long to wait for another message of a burst. A session's messages arrive as fast as
// the network carries them. It is waited for if sessions have turned out to hold several messages:
// one write then takes all of them.
const burst = time.Millisecond

// Buffered implements link.
func (l *amqpLink) Buffered(count int) []*azservicebus.ReceivedMessage {
	if l.Broken() {
		return nil
	}
	return l.amqpSession.Buffered(count)
}

// TryNext implements link. The broker grants sessions that have a message: the first one is on its
// way.
func (l *amqpLink) TryNext(ctx context.Context, count int) ([]*azservicebus.ReceivedMessage, error) {
	if l.Broken() {
		return nil, ErrRelease
	}
	if l.begun {
		return l.ReceiveBuffered(count)
	}
	bounded, cancel := context.WithTimeout(ctx, expectedWithin)
	defer cancel()
	messages, err := l.Next(bounded, count)
	switch {
	case err != nil && bounded.Err() != nil && ctx.Err() == nil:
		return nil, ErrRelease
	case err != nil:
		return nil, err
	}
	if due, _ := l.backlog.shouldPeek(); due {
		// The first message came before its size was known, so the credit that followed it is for a
		// whole batch beside it.
		count = l.Allow(count)
		messages = append(messages, l.amqpSession.ReceiveMore(ctx, count-len(messages), burst)...)
		l.backlog.found(len(messages) > 1)
	}
	return messages, nil
}

// Next implements link.
func (l *amqpLink) Next(ctx context.Context, count int) ([]*azservicebus.ReceivedMessage, error) {
	messages, err := l.Receive(ctx, count)
	switch {
	case err != nil && l.Broken(): // the lock or the connection was lost; if accepting fails too, it reports why
		return nil, fmt.Errorf("%w: %w", ErrRelease, err)
	case err != nil:
		return nil, err
	}
	l.begun = true
	return messages, nil
}
