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
	session, err := acceptNext(ctx, conn.conn, d.entity)
	if err != nil {
		conn.release(ctx, !answered(err) && !errors.Is(err, errNoSession) && !errors.Is(err, context.Canceled))
		return nil, nil, err
	}
	session.budget, session.backlog = d.budget, d.backlog
	release := func(ctx context.Context) { conn.release(ctx, session.doubtful.Load()) }
	return session, release, nil
}

func (d *amqpAcceptor) close(ctx context.Context) { d.conns.close(ctx) }

// burst is how long to wait for another message of a burst. A session's messages arrive as fast as
// the network carries them. It is waited for if sessions have turned out to hold several messages:
// one write then takes all of them.
const burst = time.Millisecond

// Buffered implements link.
func (s *amqpSession) Buffered(count int) []*azservicebus.ReceivedMessage {
	if s.broken.Load() {
		return nil
	}
	return s.appendBuffered(nil, count)
}

// TryNext implements link. The broker grants sessions that have a message: the first one is on its
// way.
func (s *amqpSession) TryNext(ctx context.Context, count int) ([]*azservicebus.ReceivedMessage, error) {
	if s.broken.Load() {
		return nil, ErrRelease
	}
	if s.begun {
		return s.receiveBuffered(count)
	}
	bounded, cancel := context.WithTimeout(ctx, expectedWithin)
	defer cancel()
	messages, err := s.Next(bounded, count)
	switch {
	case err != nil && bounded.Err() != nil && ctx.Err() == nil:
		return nil, ErrRelease
	case err != nil:
		return nil, err
	}
	if due, _ := s.backlog.shouldPeek(); due {
		// The first message came before its size was known, so the credit that followed it is for a
		// whole batch beside it.
		count = s.budget.allow(count)
		messages = append(messages, s.receiveMore(ctx, count-len(messages), burst)...)
		s.backlog.found(len(messages) > 1)
	}
	return messages, nil
}

// Next implements link.
func (s *amqpSession) Next(ctx context.Context, count int) ([]*azservicebus.ReceivedMessage, error) {
	messages, err := s.receive(ctx, count)
	switch {
	case err != nil && s.broken.Load(): // the lock or the connection was lost; if accepting fails too, it reports why
		return nil, fmt.Errorf("%w: %w", ErrRelease, err)
	case err != nil:
		return nil, err
	}
	s.begun = true
	return messages, nil
}
