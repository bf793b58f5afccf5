package broker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/sluice-cdc/sluice/shared/servicebus"
)

const (
	// minDialTimeout bounds the first attempt to open a connection, which costs some ten round trips. Each attempt that times out
	// doubles the time of the next one, up to longestOpen.
	minDialTimeout = 5 * time.Second
	maxDialTimeout = time.Minute
	// closeTimeout bounds the closing of a connection that is no longer used.
	closeTimeout = 2 * time.Second
)

// ServiceBus sends to one topic or queue, over one link that all lanes share.
//
// It speaks AMQP itself. With the SDK every lane would reopen a broken link for itself, under a mutex that is held while waiting for
// the network, so that the other lanes wait whatever their contexts say; and the SDK reports as sent what the broker has released
// (azservicebus v1.11.0, AMQPLinksImpl.RecoverIfNeeded, go-amqp v1.7.0, Sender.Send).
type ServiceBus struct {
	entity    string
	namespace *servicebus.Namespace

	isolated  *ServiceBus   // the connection for one batch at a time; nil in itself
	isolating chan struct{} // holds a token while a batch is sent apart

	replaced atomic.Int64 // connections given up

	current atomic.Pointer[connection] // nil: the next lane that needs one has it opened
	closing sync.WaitGroup

	mu          sync.Mutex    // never held while the network is waited for
	pending     *pendingDial  // under way; nil while none is; guarded by mu
	dialTimeout time.Duration // for the next attempt to open one; guarded by mu
}

// pending is an attempt to open a connection. The fence does not end it, because it sends nothing: when it takes longer than a lane
// may wait, a later attempt finds the connection open.
type pendingDial struct {
	cancel context.CancelFunc
	done   chan struct{} // closed when it is over
	// conn, or err, is what came of it; read after done is closed.
	conn *connection
	err  error
}

var _ Broker = (*ServiceBus)(nil)

// connection is an open link on a connection of its own. It is used by all lanes at once.
type connection struct {
	*servicebus.Conn
	link *amqp.Sender
	// sending holds a token while a lane hands its batch to the link, which waits for credit there; acknowledgements are
	// waited for by all lanes at once.
	sending       chan struct{}
	batchCapacity uint64      // bytes of a batch, at most
	used          atomic.Bool // something has been sent since it was last looked at
}

// NewServiceBus sends to an entity; nothing is connected before the first use.
func NewServiceBus(entity string, namespace *servicebus.Namespace) *ServiceBus {
	return &ServiceBus{
		entity: entity, namespace: namespace, dialTimeout: minDialTimeout, isolating: make(chan struct{}, 1),
		isolated: &ServiceBus{entity: entity, namespace: namespace, dialTimeout: minDialTimeout},
	}
}

// NewBatch begins a batch as large as the link allows, and opens the link where it is not open.
func (s *ServiceBus) NewBatch(ctx context.Context) (Batch, error) {
	c, err := s.connect(ctx)
	if err != nil {
		return nil, err
	}
	return &amqpBatch{capacity: c.batchCapacity, maxMessageBytes: c.link.MaxMessageSize()}, nil
}

// Send sends a batch that NewBatch made, over the connection that is open now. If anything fails but the batch itself, the
// connection is closed: what other lanes are sending on it fails, and is sent again.
func (s *ServiceBus) Send(ctx context.Context, b Batch) error {
	c, err := s.connect(ctx)
	if err != nil {
		return err
	}
	c.used.Store(true)
	batch := b.(*amqpBatch)
	message, err := batch.message()
	if err != nil {
		return err
	}
	state, err := c.send(ctx, message)
	if err == nil {
		err = sendError(state)
	} else {
		if s.abandon(ctx, c) {
			s.replaced.Add(1)
		}
		err = transportError(err)
	}
	if batch.unbatched != nil && isSizeExceeded(err) {
		return fmt.Errorf("%w: not even by itself: %v", ErrOversized, err) //nolint:errorlint // what it says is no verdict any more
	}
	return err
}

// SendIsolated implements [Broker].
func (s *ServiceBus) SendIsolated(ctx context.Context, b Batch) error {
	select {
	case s.isolating <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("wait for another batch that is sent apart: %w", context.Cause(ctx))
	}
	defer func() { <-s.isolating }()
	return s.isolated.Send(ctx, b)
}

// Close closes the connection, or gives up opening one, and waits for those that were given up before. Nobody uses it any more.
func (s *ServiceBus) Close(ctx context.Context) {
	if s.isolated != nil {
		s.isolated.Close(ctx)
	}
	s.mu.Lock()
	under := s.pending
	s.mu.Unlock()
	if under != nil {
		under.cancel()
		<-under.done
	}
	if c := s.current.Load(); c != nil {
		s.abandon(ctx, c)
	}
	s.closing.Wait()
}

// connect gives the open connection, or has one opened while all lanes wait for it, each no longer than its context.
func (s *ServiceBus) connect(ctx context.Context) (*connection, error) {
	if c := s.current.Load(); c != nil {
		return c, nil
	}
	o := s.open(ctx)
	select {
	case <-o.done:
		return o.conn, o.err
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for a connection: %w", context.Cause(ctx))
	}
}

// open begins to open a connection, unless somebody has already.
func (s *ServiceBus) open(ctx context.Context) *pendingDial {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pending != nil {
		return s.pending
	}
	o := &pendingDial{done: make(chan struct{})}
	if o.conn = s.current.Load(); o.conn != nil { // opened meanwhile
		close(o.done)
		return o
	}
	ctx, o.cancel = context.WithTimeout(context.WithoutCancel(ctx), s.dialTimeout)
	s.pending = o
	s.closing.Go(func() {
		defer o.cancel()
		o.conn, o.err = s.dial(ctx)
		s.mu.Lock()
		defer s.mu.Unlock()
		switch {
		case o.err == nil:
			s.dialTimeout = minDialTimeout
		case errors.Is(ctx.Err(), context.DeadlineExceeded):
			s.dialTimeout = min(2*s.dialTimeout, maxDialTimeout)
		}
		s.current.Store(o.conn)
		s.pending = nil
		close(o.done)
	})
	return o
}

func (s *ServiceBus) dial(ctx context.Context) (*connection, error) {
	conn, err := s.namespace.Connect(ctx)
	if err != nil {
		return nil, err
	}
	c := &connection{Conn: conn, sending: make(chan struct{}, 1)}
	if err := c.openLink(ctx, s.entity); err != nil {
		s.close(ctx, c)
		return nil, err
	}
	return c, nil
}

func (c *connection) openLink(ctx context.Context, entity string) error {
	if err := c.Claim(ctx, entity); err != nil {
		return err
	}
	session, err := c.Session(ctx)
	if err != nil {
		return err
	}
	c.link, err = session.NewSender(ctx, entity, &amqp.SenderOptions{
		SettlementMode:              amqp.SenderSettleModeMixed.Ptr(),
		RequestedReceiverSettleMode: amqp.ReceiverSettleModeFirst.Ptr(),
	})
	if err != nil {
		return fmt.Errorf("open a link to %s: %w", entity, err)
	}
	c.batchCapacity = batchCapacity(c.link.Properties(), c.link.MaxMessageSize())
	return nil
}

// send hands a message over to the link and waits for the broker's answer. While one lane waits for credit the others wait too,
// no longer than their contexts.
func (c *connection) send(ctx context.Context, m *amqp.Message) (amqp.DeliveryState, error) {
	select {
	case c.sending <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for another batch to be handed over: %w", context.Cause(ctx))
	}
	receipt, err := servicebus.Send(ctx, c.link, m)
	<-c.sending
	if err != nil {
		return nil, err
	}
	return receipt.Wait(ctx)
}

// abandon closes a connection and makes the next lane open a new one. first is false where another lane has done so.
func (s *ServiceBus) abandon(ctx context.Context, c *connection) (first bool) {
	if first = s.current.CompareAndSwap(c, nil); first {
		s.close(ctx, c)
	}
	return first
}

// Replaced is how many connections were given up because a send on them failed. Safe for concurrent use.
func (s *ServiceBus) Replaced() int64 { return s.replaced.Load() + s.isolated.replaced.Load() }

func (s *ServiceBus) close(ctx context.Context, c *connection) {
	s.closing.Go(func() { // a dead peer does not answer, and no lane should wait for it
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		c.Close(ctx)
	})
}
