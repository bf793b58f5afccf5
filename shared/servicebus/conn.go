package servicebus

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/Azure/go-amqp"
)

// Conn is an open connection. It is safe for concurrent use.
type Conn struct {
	namespace *Namespace
	amqp      *amqp.Conn

	claiming gate                 // one link to the claims-based security node at a time: the service allows no more
	managing gate                 // guards managers
	managers map[string]*requests // by entity

	renewing   chan struct{} // holds a value when there is another claim to renew
	background sync.WaitGroup
	stop       context.CancelFunc // ends what works in the background

	mu     sync.Mutex           // never held while the network is waited for
	claims map[string]time.Time // by audience: when its token ends; guarded by mu
	idle   []*Session           // have no link; guarded by mu
}

func newConn(ctx context.Context, n *Namespace, opened *amqp.Conn) *Conn {
	c := &Conn{
		namespace: n, amqp: opened, claiming: newGate(), managing: newGate(), renewing: make(chan struct{}, 1),
		managers: map[string]*requests{}, claims: map[string]time.Time{},
	}
	living, stop := context.WithCancel(context.WithoutCancel(ctx))
	c.stop = stop
	c.background.Go(func() { c.renewClaims(living) })
	return c
}

// Done returns a channel that is closed when the connection has ended, at either end.
func (c *Conn) Done() <-chan struct{} { return c.amqp.Done() }

// Err returns why the connection has ended; nil while it is open.
func (c *Conn) Err() error { return c.amqp.Err() }

// Close closes the connection, and waits for its background work to end. It does not wait for the
// service's answer; and if ctx ends, it does not wait for its own last write either.
func (c *Conn) Close(ctx context.Context) {
	c.stop()
	ended := make(chan struct{})
	go func() { // joined here, or by the deadline of its one write
		defer close(ended)
		_ = c.amqp.Close()
		c.background.Wait()
	}()
	select {
	case <-ended:
	case <-ctx.Done():
	}
}

// Session is an AMQP session that [Conn.Session] lent.
type Session struct {
	*amqp.Session
	// Of the links that it had, the borrower's or guarded by Conn.mu while it is idle.
	links, unsettled int
}

// Used reports whether the session had links before. If so, the service may have ended it
// meanwhile: the first use fails with an [*amqp.SessionError].
func (s *Session) Used() bool { return s.links > 0 }

const (
	// maxLinks and maxUnsettled are how many links an AMQP session may have had, and deliveries
	// that were not settled, to be lent again: go-amqp remembers each such delivery until the
	// session ends.
	maxLinks     = 256
	maxUnsettled = 1000
)

// Session lends an AMQP session without links. This takes a round trip unless one was returned
// before. The caller must pass it to ReturnSession or close it.
func (c *Conn) Session(ctx context.Context) (*Session, error) {
	c.mu.Lock()
	if last := len(c.idle) - 1; last >= 0 {
		session := c.idle[last]
		c.idle = c.idle[:last]
		c.mu.Unlock()
		return session, nil
	}
	c.mu.Unlock()
	session, err := c.amqp.NewSession(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("begin an AMQP session: %w", err)
	}
	return &Session{Session: session}, nil
}

// ReturnSession takes back a session that Session lent and that has no links any more, to lend it
// again. unsettled is how many deliveries of its last link were not settled. It reports false if
// the session was used enough: the caller then closes it.
func (c *Conn) ReturnSession(session *Session, unsettled int) bool {
	session.links++
	session.unsettled += unsettled
	if session.links >= maxLinks || session.unsettled >= maxUnsettled {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.idle = append(c.idle, session)
	return true
}

// Send hands a message over to a link, like [amqp.Sender.SendWithReceipt], but always ends with its
// context. The latter waits for ever if its context ends at the moment when the connection dies: it
// returns its credit to a link that nothing serves any more (go-amqp v1.7.0, Sender.send). So Send
// closes the link if the context ends first; the link cannot be used after that.
func Send(ctx context.Context, link *amqp.Sender, m *amqp.Message) (amqp.SendReceipt, error) {
	stop := context.AfterFunc(ctx, func() {
		_ = link.Close(ctx) // does not wait for the answer: the context has ended
	})
	defer stop()
	return link.SendWithReceipt(ctx, m, nil)
}

// gate admits one goroutine at a time. Unlike a mutex, it may be held during a wait for the
// network: the wait for a gate ends with a context.
type gate chan struct{}

func newGate() gate { return make(gate, 1) }

func (g gate) enter(ctx context.Context, what string) error {
	select {
	case g <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for others that %s: %w", what, context.Cause(ctx))
	}
}

func (g gate) leave() { <-g }
