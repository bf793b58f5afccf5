package network

import (
	"net"
	"sync"

	"github.com/sluice-cdc/sluice/tests/emulator/netpipe"
)

// Hub is one server's end of the network: a listener whose connections come over links.
type Hub struct {
	name netpipe.Addr

	mu      sync.Mutex
	backlog []net.Conn    // guarded by mu
	closed  bool          // guarded by mu
	changed chan struct{} // guarded by mu; holds a token after each change
}

var _ net.Listener = (*Hub)(nil)

// Listen returns an open hub.
func Listen(name string) *Hub { return &Hub{name: netpipe.Addr(name), changed: make(chan struct{}, 1)} }

// Accept returns the next connection, and an error matching net.ErrClosed after Close. One
// goroutine may call it.
func (h *Hub) Accept() (net.Conn, error) {
	for {
		h.mu.Lock()
		if h.closed {
			h.mu.Unlock()
			return nil, net.ErrClosed
		}
		if len(h.backlog) > 0 {
			c := h.backlog[0]
			h.backlog = h.backlog[1:]
			h.mu.Unlock()
			return c, nil
		}
		h.mu.Unlock()
		<-h.changed
	}
}

func (h *Hub) offer(c net.Conn) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return net.ErrClosed
	}
	h.backlog = append(h.backlog, c)
	h.signal()
	return nil
}

func (h *Hub) signal() {
	select {
	case h.changed <- struct{}{}:
	default:
	}
}

// Close ends Accept, and closes connections that have not been accepted.
func (h *Hub) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for _, c := range h.backlog {
		_ = c.Close()
	}
	h.backlog = nil
	h.signal()
	return nil
}

// Addr returns the hub's name.
func (h *Hub) Addr() net.Addr { return h.name }
