package publish

import (
	"context"
	"errors"
	"sync"
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

	mu      sync.Mutex
	current *connection // nil: the next lane that needs one opens it
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
	return &ServiceBus{entity: entity, dial: dial}
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
	return serviceBusBatch{batch}, nil
}

// Send sends a batch that NewBatch made, over whatever connection there is now.
func (s *ServiceBus) Send(ctx context.Context, b Batch) error {
	c, err := s.connect(ctx)
	if err != nil {
		return err
	}
	err = c.sender.SendMessageBatch(ctx, b.(serviceBusBatch).MessageBatch, nil)
	if err != nil && !refusedByBroker(err) {
		s.giveUp(ctx, c)
	}
	return err
}

// Close closes the connection and waits for those that were given up before.
func (s *ServiceBus) Close(ctx context.Context) {
	s.mu.Lock()
	c := s.current
	s.mu.Unlock()
	if c != nil {
		s.giveUp(ctx, c)
	}
	s.closing.Wait()
}

// connect gives the open connection, or opens one while the other lanes wait for it.
func (s *ServiceBus) connect(ctx context.Context) (*connection, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current != nil {
		return s.current, nil
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
	s.current = c
	return c, nil
}

// giveUp makes the next lane open a new connection. What others have under way on this one ends with an error, and is
// sent again.
func (s *ServiceBus) giveUp(ctx context.Context, c *connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == c {
		s.current = nil
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

// refusedByBroker says that the broker answered: the connection is fine, and it is the send that has to wait.
func refusedByBroker(err error) bool {
	refusal, ok := errors.AsType[*amqp.Error](err)
	if !ok {
		return false
	}
	switch refusal.Condition {
	case "com.microsoft:server-busy", "com.microsoft:operation-cancelled", "com.microsoft:timeout",
		amqp.ErrCondResourceLimitExceeded:
		return true
	}
	return false
}

type serviceBusBatch struct{ *azservicebus.MessageBatch }

func (b serviceBusBatch) Add(m *azservicebus.Message) error {
	err := b.AddMessage(m, nil)
	if !errors.Is(err, azservicebus.ErrMessageTooLarge) {
		return err
	}
	if b.NumMessages() == 0 {
		return ErrOversized
	}
	return errFull
}
