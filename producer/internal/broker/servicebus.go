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
	// minDialTimeout bounds the first attempt to open a connection, which takes about ten round
	// trips. Each attempt that times out doubles the timeout of the next one, up to maxDialTimeout,
	// and one that succeeds leaves twice its own time.
	minDialTimeout = 5 * time.Second
	maxDialTimeout = time.Minute
	// closeTimeout bounds the closing of a connection that is no longer used.
	closeTimeout = 2 * time.Second
)

// ServiceBus sends to one topic or queue over one link that all lanes share.
//
// It speaks AMQP directly, for two reasons. With the SDK, every lane would reopen a broken link for
// itself, under a mutex that is held during network calls, so that other lanes wait regardless of
// their contexts. And the SDK reports a released message as sent (azservicebus v1.11.0,
// AMQPLinksImpl.RecoverIfNeeded; go-amqp v1.7.0, Sender.Send).
type ServiceBus struct {
	entity    string
	namespace *servicebus.Namespace

	isolated  *ServiceBus   // the connection for SendIsolated; nil in itself
	isolating chan struct{} // holds a token during SendIsolated

	replaced atomic.Int64 // connections abandoned

	current atomic.Pointer[connection] // nil: the next lane that needs a connection opens it
	closing sync.WaitGroup

	mu          sync.Mutex    // never held during network calls
	pending     *pendingDial  // nil if no attempt is running; guarded by mu
	detached    *connection   // has no link any more; nil: the next attempt opens a connection; guarded by mu
	dialTimeout time.Duration // of the next attempt; guarded by mu
}

// pendingDial is a running attempt to open a connection. The fence does not end it, because it
// sends nothing. If it takes longer than a lane may wait, a later send finds the connection open.
type pendingDial struct {
	cancel context.CancelFunc
	done   chan struct{} // closed when the attempt has ended
	// conn and err are the result; read after done is closed.
	conn *connection
	err  error
}

var _ Broker = (*ServiceBus)(nil)

// connection is an open link on a connection of its own. All lanes use it at once.
type connection struct {
	*servicebus.Conn
	session *servicebus.Session
	link    *amqp.Sender
	// sending holds a token while a lane passes its batch to the link, which waits for credit. The
	// lanes wait for acknowledgements at the same time.
	sending       chan struct{}
	batchCapacity uint64      // size limit of a batch, in bytes
	used          atomic.Bool // something was sent since the last idle check
}

// NewServiceBus returns a sender to an entity. It connects at the first use.
func NewServiceBus(entity string, namespace *servicebus.Namespace) *ServiceBus {
	return &ServiceBus{
		entity: entity, namespace: namespace, dialTimeout: minDialTimeout, isolating: make(chan struct{}, 1),
		isolated: &ServiceBus{entity: entity, namespace: namespace, dialTimeout: minDialTimeout},
	}
}

// NewBatch returns a batch with the capacity of the link, and opens the link if necessary.
func (s *ServiceBus) NewBatch(ctx context.Context) (Batch, error) {
	c, err := s.connect(ctx)
	if err != nil {
		return nil, err
	}
	return &amqpBatch{capacity: c.batchCapacity, maxMessageBytes: c.link.MaxMessageSize()}, nil
}

// Send sends a batch that NewBatch returned over the current connection. If the transport fails,
// the connection is closed: the sends of other lanes on it fail as well and are repeated.
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
		if s.replaceLink(c, err) || s.abandon(ctx, c) {
			s.replaced.Add(1)
		}
		err = transportError(err)
	}
	if batch.unbatched != nil && isSizeExceeded(err) {
		return fmt.Errorf("%w even without a batch: %v", ErrOversized, err) //nolint:errorlint // the cause must not be classified again
	}
	return err
}

// SendIsolated implements [Broker].
func (s *ServiceBus) SendIsolated(ctx context.Context, b Batch) error {
	select {
	case s.isolating <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("wait for another isolated batch: %w", context.Cause(ctx))
	}
	defer func() { <-s.isolating }()
	return s.isolated.Send(ctx, b)
}

// Close closes the connection, or cancels a running attempt to open one, and waits for connections
// that were abandoned before. The caller must not use s any more.
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
	if c := s.takeDetached(); c != nil {
		s.close(ctx, c)
	}
	s.closing.Wait()
}

// connect returns the open connection, or waits until one is opened, no longer than ctx.
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

// open starts to open a connection, unless an attempt is already running.
func (s *ServiceBus) open(ctx context.Context) *pendingDial {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pending != nil {
		return s.pending
	}
	o := &pendingDial{done: make(chan struct{})}
	if o.conn = s.current.Load(); o.conn != nil { // opened by another lane meanwhile
		close(o.done)
		return o
	}
	ctx, o.cancel = context.WithTimeout(context.WithoutCancel(ctx), s.dialTimeout)
	s.pending = o
	s.closing.Go(func() {
		defer o.cancel()
		began := time.Now()
		o.conn, o.err = s.dial(ctx)
		s.mu.Lock()
		defer s.mu.Unlock()
		switch {
		case o.err == nil:
			s.dialTimeout = min(max(2*time.Since(began), minDialTimeout), maxDialTimeout)
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
	if old := s.takeDetached(); old != nil {
		c := &connection{Conn: old.Conn, session: old.session, sending: make(chan struct{}, 1)}
		if c.openLink(ctx, s.entity) == nil {
			return c, nil
		}
		s.close(ctx, old)
	}
	conn, err := s.namespace.Connect(ctx)
	if err != nil {
		return nil, err
	}
	c := &connection{Conn: conn, sending: make(chan struct{}, 1)}
	if err := c.openLink(ctx, s.entity); err != nil {
		s.close(ctx, c)
		return nil, openError(err)
	}
	return c, nil
}

func (c *connection) openLink(ctx context.Context, entity string) error {
	if err := c.Claim(ctx, entity); err != nil {
		return err
	}
	if c.session == nil {
		session, err := c.Session(ctx)
		if err != nil {
			return err
		}
		c.session = session
	}
	var err error
	c.link, err = c.session.NewSender(ctx, entity, &amqp.SenderOptions{
		SettlementMode:              amqp.SenderSettleModeMixed.Ptr(),
		RequestedReceiverSettleMode: amqp.ReceiverSettleModeFirst.Ptr(),
	})
	if err != nil {
		return fmt.Errorf("open a link to %s: %w", entity, err)
	}
	c.batchCapacity = batchCapacity(c.link.Properties(), c.link.MaxMessageSize())
	return nil
}

// send passes a message to the link and waits for the broker's outcome. While one lane waits for
// credit the others wait too, no longer than their contexts.
func (c *connection) send(ctx context.Context, m *amqp.Message) (amqp.DeliveryState, error) {
	select {
	case c.sending <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for another batch to be passed to the link: %w", context.Cause(ctx))
	}
	receipt, err := servicebus.Send(ctx, c.link, m)
	<-c.sending
	if err != nil {
		return nil, err
	}
	return receipt.Wait(ctx)
}

// abandon closes a connection, so that the next lane opens a new one. It returns false if another
// lane has already abandoned it.
func (s *ServiceBus) abandon(ctx context.Context, c *connection) (first bool) {
	if first = s.current.CompareAndSwap(c, nil); first {
		s.close(ctx, c)
	}
	return first
}

// replaceLink opens a new link on the same connection if the broker has detached only the link: a
// connection may take long to open, and the broker detaches a link for each message that it objects
// to. It returns false if err is anything else, or if another lane has already replaced the link.
func (s *ServiceBus) replaceLink(c *connection, err error) bool {
	link, detached := errors.AsType[*amqp.LinkError](err)
	if !detached || link.RemoteErr == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.current.CompareAndSwap(c, nil) {
		return false
	}
	s.detached = c
	return true
}

func (s *ServiceBus) takeDetached() (c *connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, s.detached = s.detached, nil
	return c
}

// Replaced returns the number of links that were replaced because a send on them failed.
// Safe for concurrent use.
func (s *ServiceBus) Replaced() int64 { return s.replaced.Load() + s.isolated.replaced.Load() }

func (s *ServiceBus) close(ctx context.Context, c *connection) {
	s.closing.Go(func() { // a dead peer does not respond, and no lane should wait for it
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		c.Close(ctx)
	})
}
