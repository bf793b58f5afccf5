package network

import (
	"context"
	"errors"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/sluice-cdc/sluice/tests/emulator/netpipe"
)

// Direction is a set of the two directions over a link.
type Direction int

// The directions.
const (
	Requests Direction = 1 << iota // from the party to the server
	Replies                        // from the server to the party
	Both     = Requests | Replies
)

// Link is one party's connection to one server. It is safe for concurrent use.
type Link struct {
	hub *Hub

	mu       sync.Mutex
	held     Direction     // guarded by mu
	cut      bool          // guarded by mu: no connection can be made
	dead     bool          // guarded by mu: the party does not exist any more
	conns    []*connection // guarded by mu: those of which an end is open
	released []time.Time   // guarded by mu: when held requests were let go
}

// connection is both ends of one connection. Its fields are guarded by the link's mutex.
type connection struct {
	client, server *end
}

// end is one end of a connection as its owner holds it.
type end struct {
	*netpipe.Conn // what is written here arrives at the other end
	link          *Link
	way           Direction // in which this end writes
	waiting       []byte    // written and held; guarded by link.mu
	closed        bool      // by its owner; guarded by link.mu
	passed        bool      // the close has been passed on; guarded by link.mu
}

// NewLink returns a healthy link to a server.
func NewLink(h *Hub) *Link { return &Link{hub: h} }

// DialContext makes a connection. It does not wait, not even while the link is held: the first
// bytes do then.
func (l *Link) DialContext(ctx context.Context, _, _ string) (net.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut || l.dead {
		return nil, &net.OpError{Op: "dial", Net: "netpipe", Addr: l.hub.Addr(), Err: syscall.EHOSTUNREACH}
	}
	a, b := netpipe.Pipe()
	c := &connection{client: &end{Conn: a, link: l, way: Requests}, server: &end{Conn: b, link: l, way: Replies}}
	if err := l.hub.offer(c.server); err != nil {
		return nil, err
	}
	l.conns = append(l.conns, c)
	return c.client, nil
}

// Write writes, or keeps what is written until the link heals.
func (e *end) Write(p []byte) (int, error) {
	e.link.mu.Lock()
	switch {
	case e.closed:
		e.link.mu.Unlock()
		return 0, net.ErrClosed
	case e.link.held&e.way != 0:
		e.waiting = append(e.waiting, p...)
		e.link.mu.Unlock()
		return len(p), nil
	}
	e.link.mu.Unlock()
	return e.Conn.Write(p)
}

// Read reads what has arrived.
func (e *end) Read(p []byte) (int, error) {
	n, err := e.Conn.Read(p)
	if err != nil {
		e.link.mu.Lock()
		if e.closed {
			err = net.ErrClosed
		}
		e.link.mu.Unlock()
	}
	return n, err
}

// SetReadDeadline sets a deadline. Once this end is closed, the deadline that woke its reader
// stays: a later one would let it wait again, and a goroutine that waits for it under a mutex would
// stop virtual time.
func (e *end) SetReadDeadline(t time.Time) error {
	e.link.mu.Lock()
	defer e.link.mu.Unlock()
	if e.closed {
		return net.ErrClosed
	}
	return e.Conn.SetReadDeadline(t)
}

// SetDeadline sets both deadlines.
func (e *end) SetDeadline(t time.Time) error {
	return errors.Join(e.SetReadDeadline(t), e.SetWriteDeadline(t))
}

// Close closes this end at once; the other end is closed behind everything that was written.
func (e *end) Close() error {
	e.link.mu.Lock()
	defer e.link.mu.Unlock()
	e.closed = true
	if e.link.held&e.way != 0 {
		return e.Conn.SetReadDeadline(time.Unix(1, 0)) // wakes this end's own reader; the peer does not notice
	}
	e.pass()
	return nil
}

// pass closes the other end. The caller holds the link's mutex.
func (e *end) pass() {
	e.passed = true
	_ = e.Conn.Close()
	l := e.link
	kept := l.conns[:0]
	for _, c := range l.conns {
		if !c.client.passed && !c.server.passed {
			kept = append(kept, c)
		}
	}
	l.conns = kept
}

// Hold makes what is sent in a direction wait from now on.
func (l *Link) Hold(d Direction) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held |= d
}

// Cut breaks every connection for both ends and lets none be made. What was held is lost.
func (l *Link) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = true
	l.drop()
}

func (l *Link) drop() {
	for _, c := range l.conns {
		c.client.abandon()
		c.server.abandon()
	}
	l.conns = nil
}

func (e *end) abandon() {
	e.waiting, e.closed, e.passed = nil, true, true
	_ = e.Conn.Close()
}

// Heal makes the link whole: what was held arrives, in order.
func (l *Link) Heal() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held&Requests != 0 {
		l.released = append(l.released, time.Now())
	}
	l.held, l.cut = 0, false
	for _, c := range append([]*connection(nil), l.conns...) {
		for _, e := range []*end{c.client, c.server} {
			if len(e.waiting) > 0 {
				_ = e.SetWriteDeadline(time.Time{}) // its owner's deadline is over; the network has none
				_, _ = e.Conn.Write(e.waiting)      // the peer may be gone; then it is lost, as on a real network
				e.waiting = nil
			}
			if e.closed && !e.passed {
				e.pass()
			}
		}
	}
}

// Kill ends the party as a killed process ends: its own ends are closed and it can make no
// connection, for ever. What it had sent and the link held stays in flight until the link heals.
// silent means that the machine is gone as well: the server does not notice, and held requests are
// lost.
func (l *Link) Kill(silent bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dead = true
	if silent {
		l.held |= Both
	}
	for _, c := range append([]*connection(nil), l.conns...) {
		e := c.client
		if e.closed {
			continue
		}
		if silent {
			e.waiting = nil
		}
		e.closed = true
		if l.held&Requests != 0 {
			_ = e.Conn.SetReadDeadline(time.Unix(1, 0))
			continue
		}
		e.pass()
	}
}

// Waiting reports whether something that the party has sent may still arrive.
func (l *Link) Waiting() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		if len(c.client.waiting) > 0 {
			return true
		}
	}
	return false
}

// Released reports whether held requests were released at this moment.
func (l *Link) Released(at time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range l.released {
		if t.Equal(at) {
			return true
		}
	}
	return false
}
