package publish

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"
)

// closeTimeout bounds how long a connection that is given up may take to close.
const closeTimeout = 2 * time.Second

// ServiceBus sends to one topic or queue, over one connection that all lanes share.
//
// It replaces a broken connection itself, one lane doing so for all. The SDK would do it, too, but every lane for
// itself: its links, opened by several goroutines at once, leave all but the last behind, open and renewing their
// tokens for ever (azservicebus v1.11.0, AMQPLinksImpl.Get).
type ServiceBus struct {
	entity string
	dial   func() (*azservicebus.Client, error)

	current atomic.Pointer[connection] // nil: the next lane that needs one opens it
	opening chan struct{}              // holds a token while nobody opens one
	closing sync.WaitGroup
}

var _ Broker = (*ServiceBus)(nil)

// connection is one client with its open sender. It is used by all lanes at once.
type connection struct {
	client *azservicebus.Client
	sender *azservicebus.Sender
}

// NewServiceBus sends to an entity. dial makes a client, whose SDK retries should be off; nothing is sent before the
// first use.
func NewServiceBus(entity string, dial func() (*azservicebus.Client, error)) *ServiceBus {
	s := &ServiceBus{entity: entity, dial: dial, opening: make(chan struct{}, 1)}
	s.opening <- struct{}{}
	return s
}

// NewBatch begins a batch as large as the link allows, and opens the link where it is not open.
func (s *ServiceBus) NewBatch(ctx context.Context) (Batch, error) {
	c, err := s.connect(ctx)
	if err != nil {
		return nil, err
	}
	batch, err := c.sender.NewMessageBatch(ctx, nil)
	if err != nil {
		s.giveUp(ctx, c)
		return nil, err
	}
	return &serviceBusBatch{MessageBatch: batch}, nil
}

// Send sends a batch that NewBatch made, over whatever connection there is now.
func (s *ServiceBus) Send(ctx context.Context, b Batch) error {
	c, err := s.connect(ctx)
	if err != nil {
		return err
	}
	batch := b.(*serviceBusBatch)
	if batch.alone != nil {
		err = c.sender.SendMessage(ctx, batch.alone, nil)
	} else {
		err = c.sender.SendMessageBatch(ctx, batch.MessageBatch, nil)
	}
	switch verdict := judge(err); {
	case err == nil:
		return nil
	case errors.Is(err, azservicebus.ErrMessageTooLarge):
		return fmt.Errorf("%w: not even by itself", ErrOversized)
	case verdict != nil:
		return fmt.Errorf("%w: %w", verdict, err)
	}
	s.giveUp(ctx, c)
	return fmt.Errorf("%w: %w", errUnknown, err)
}

// Close closes the connection and waits for those that were given up before.
func (s *ServiceBus) Close(ctx context.Context) {
	if c := s.current.Load(); c != nil {
		s.giveUp(ctx, c)
	}
	s.closing.Wait()
}

// connect gives the open connection, or opens one while the other lanes wait for it, each no longer than its context.
func (s *ServiceBus) connect(ctx context.Context) (*connection, error) {
	if c := s.current.Load(); c != nil {
		return c, nil
	}
	select {
	case <-s.opening:
		defer func() { s.opening <- struct{}{} }()
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for a connection: %w", context.Cause(ctx))
	}
	if c := s.current.Load(); c != nil {
		return c, nil
	}
	client, err := s.dial()
	if err != nil {
		return nil, err
	}
	c := &connection{client: client}
	if c.sender, err = client.NewSender(s.entity, nil); err == nil {
		_, err = c.sender.NewMessageBatch(ctx, nil) // opens the link
	}
	if err != nil {
		s.close(ctx, c)
		return nil, err
	}
	s.current.Store(c)
	return c, nil
}

// giveUp makes the next lane open a new connection. What others have under way on this one ends with an error, and is
// sent again.
func (s *ServiceBus) giveUp(ctx context.Context, c *connection) {
	if s.current.CompareAndSwap(c, nil) {
		s.close(ctx, c)
	}
}

func (s *ServiceBus) close(ctx context.Context, c *connection) {
	s.closing.Go(func() { // a dead peer answers no farewell, and no lane should wait for it
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		_ = c.client.Close(ctx)
	})
}

// judge says what a failed send means: errBusy, errCutShort or [ErrRefused] when the broker answered, so that the
// connection is fine; nil when the connection is in doubt.
func judge(err error) error {
	answer, ok := errors.AsType[*amqp.Error](err)
	if !ok {
		return nil
	}
	switch answer.Condition {
	case "com.microsoft:server-busy", amqp.ErrCondResourceLimitExceeded:
		return errBusy
	case "com.microsoft:operation-cancelled", "com.microsoft:timeout":
		return errCutShort
	case amqp.ErrCondMessageSizeExceeded:
		return ErrRefused // the service says so by closing the link, too
	case amqp.ErrCondNotAllowed, amqp.ErrCondNotImplemented, amqp.ErrCondInvalidField, amqp.ErrCondDecodeError,
		"com.microsoft:argument-error", "com.microsoft:argument-out-of-range":
		if answered(err) {
			return ErrRefused // several partition keys in a batch for a partitioned entity, for example
		}
	}
	return nil
}

// answered says that an error is what the broker answered to a batch, and not why it closed the link, the session or the
// connection: those may heal.
func answered(err error) bool {
	_, link := errors.AsType[*amqp.LinkError](err)
	_, session := errors.AsType[*amqp.SessionError](err)
	_, conn := errors.AsType[*amqp.ConnError](err)
	return !link && !session && !conn
}

// serviceBusBatch is a batch, or one message that is sent without one: a batch holds 1 MB at most, a message of a Premium
// entity up to 100 MB.
type serviceBusBatch struct {
	*azservicebus.MessageBatch
	alone *azservicebus.Message
}

func (b *serviceBusBatch) Add(m *azservicebus.Message) error {
	if b.alone != nil {
		return errFull
	}
	err := b.AddMessage(m, nil)
	if !errors.Is(err, azservicebus.ErrMessageTooLarge) {
		return err
	}
	if b.NumMessages() == 0 {
		return ErrOversized
	}
	return errFull
}

// AddAlone takes the message that an empty batch has no room for.
func (b *serviceBusBatch) AddAlone(m *azservicebus.Message) { b.alone = m }
