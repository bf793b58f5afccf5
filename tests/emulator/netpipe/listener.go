package netpipe

import (
	"context"
	"fmt"
	"net"
	"sync"
	"syscall"
)

// Listener accepts the connections that are made with its DialContext. Make one
// with Listen. It is safe for concurrent use.
type Listener struct {
	addr Addr

	mu      sync.Mutex
	dialled int           // guarded by mu
	backlog []*Conn       // guarded by mu
	closed  bool          // guarded by mu
	changed chan struct{} // guarded by mu; as in queue
}

var _ net.Listener = (*Listener)(nil)

// Listen returns an open listener of the given name.
func Listen(name string) *Listener { return &Listener{addr: Addr(name)} }

// DialContext makes a connection. Like a TCP handshake, it does not wait for Accept. It ignores
// network and address, so that it can be used wherever a dialer is needed. A closed listener
// refuses with syscall.ECONNREFUSED.
func (l *Listener) DialContext(ctx context.Context, _, _ string) (net.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, opError("dial", nil, l.addr, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, opError("dial", nil, l.addr, syscall.ECONNREFUSED)
	}
	l.dialled++
	client, server := pipe(Addr(fmt.Sprintf("%s-client-%d", l.addr, l.dialled)), l.addr)
	l.backlog = append(l.backlog, server)
	l.notify()
	return client, nil
}

func (l *Listener) notify() {
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}

// Accept returns connections in the order they were dialled, and an error
// matching net.ErrClosed after Close.
func (l *Listener) Accept() (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		if l.closed {
			return nil, opError("accept", l.addr, nil, net.ErrClosed)
		}
		if len(l.backlog) > 0 {
			c := l.backlog[0]
			l.backlog = l.backlog[1:]
			return c, nil
		}
		if l.changed == nil {
			l.changed = make(chan struct{})
		}
		changed := l.changed
		l.mu.Unlock()
		<-changed
		l.mu.Lock()
	}
}

// Close ends Accept and closes the connections that have not been accepted; accepted ones stay
// open. It never fails.
func (l *Listener) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for _, c := range l.backlog {
		_ = c.Close()
	}
	l.backlog = nil
	l.notify()
	return nil
}

// Addr returns the listener's name.
func (l *Listener) Addr() net.Addr { return l.addr }
