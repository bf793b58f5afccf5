package sim

import (
	"bytes"
	"context"
	"net"
	"sync"
	"time"

	"github.com/sluice-cdc/sluice/tests/sim/internal/network"
)

// openingTrips is about how many times a producer waits for Service Bus until it can send: SASL,
// the connection, the claim, a session, a link.
const openingTrips = 12

// longWay is a producer's dialer to Service Bus: opening a connection is slow while the plan
// requires it. Half of the time passes before the first byte, as it does for the name, the
// handshakes and the token, and half of it during the negotiation.
type longWay struct {
	w    *world
	link *network.Link
}

// DialContext makes a connection, after a while.
func (l longWay) DialContext(ctx context.Context, _, _ string) (net.Conn, error) {
	d := time.Duration(l.w.opening.Load())
	if d > 0 {
		pause(ctx, d/2)
	}
	conn, err := l.link.DialContext(ctx, "", "")
	if err != nil || d == 0 {
		return conn, err
	}
	return &longTalk{Conn: conn, w: l.w, left: openingTrips, trip: d / 2 / openingTrips, ended: make(chan struct{})}, nil
}

// longTalk is a connection whose first writes are slow. The one goroutine that writes owns it.
type longTalk struct {
	net.Conn
	w    *world
	left int
	trip time.Duration
	// ended is closed once nothing more can be read. Then a write is not slow, for the same reason
	// as the frame that closes the connection.
	ended chan struct{}
	once  sync.Once
}

// Read reads what has arrived.
func (c *longTalk) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil {
		c.once.Do(func() { close(c.ended) })
	}
	return n, err
}

// closes is an AMQP frame that closes the connection without an error.
var closes = []byte{0, 0, 0, 12, 2, 0, 0, 0, 0, 0x53, 0x18, 0x45}

// Write writes, after a while. What closes the connection is written at once: go-amqp holds a mutex
// until that is done, and virtual time stands still while another goroutine waits for it.
func (c *longTalk) Write(p []byte) (int, error) {
	if c.left > 0 && !bytes.Equal(p, closes) {
		if c.left--; c.left == 0 {
			c.w.met.add("slow openings", 1)
		}
		select {
		case <-time.After(c.trip): // it is the network that takes so long
		case <-c.ended:
		}
	}
	return c.Conn.Write(p)
}
