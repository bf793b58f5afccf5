package netpipe

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

const (
	// delayLimit is how many bytes a direction keeps in flight: enough to simulate latency, and not
	// bandwidth.
	delayLimit = 8 << 20
	// linger bounds how long a closed connection tries to hand over its last
	// bytes to a peer that does not read.
	linger = time.Second
	// pumpSize is the size of the reads that feed a delayed direction.
	pumpSize = 64 << 10
)

// Delay returns a listener whose connections have a round trip of d: what is read was sent d/2 ago
// by the peer, and what is written reaches it d/2 later. Order is kept, and any amount may be in
// flight: pipelined requests pay d once. It returns l itself if d is not positive.
//
// A connection has two goroutines, which end within d/2 of its Close, or a second later if the peer
// does not read. To join them, close the connections and call (*DelayListener).Wait.
func Delay(l net.Listener, d time.Duration) net.Listener {
	if d <= 0 {
		return l
	}
	return &DelayListener{Listener: l, delay: d}
}

// DelayListener is a listener with latency: see Delay.
type DelayListener struct {
	net.Listener
	delay time.Duration
	pumps sync.WaitGroup
}

// Wait returns when the goroutines of every connection have ended. Close the
// listener and the connections before.
func (l *DelayListener) Wait() { l.pumps.Wait() }

// Accept returns the next connection, with latency.
func (l *DelayListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err // callers expect the inner listener's errors
	}
	dc := &delayedConn{Conn: c, in: newQueue(delayLimit, l.delay/2), out: newQueue(delayLimit, l.delay-l.delay/2), closed: make(chan struct{})}
	l.pumps.Go(dc.pumpIn)
	l.pumps.Go(dc.pumpOut)
	return dc, nil
}

// delayedConn reads from a queue that one goroutine fills and writes to a queue
// that another empties.
type delayedConn struct {
	net.Conn // addresses
	in, out  *queue
	closing  sync.Once
	closed   chan struct{}
}

// pumpIn takes bytes off the wire at once, so that their delay begins when they
// arrive. Waiting in a full queue is the flow control.
func (c *delayedConn) pumpIn() {
	buf := make([]byte, pumpSize)
	for {
		n, err := c.Conn.Read(buf)
		if n > 0 {
			if _, writeErr := c.in.write(buf[:n]); writeErr != nil {
				return // Close came first
			}
		}
		if err != nil {
			c.in.closeWrite(err, net.ErrClosed)
			return
		}
	}
}

// pumpOut puts bytes on the wire as they are due and closes the wire when Close
// came and the last of them is out.
func (c *delayedConn) pumpOut() {
	buf := make([]byte, pumpSize)
	for {
		n, err := c.out.read(buf)
		if n > 0 {
			if _, writeErr := c.Conn.Write(buf[:n]); writeErr != nil {
				err = writeErr
			}
		}
		switch {
		case err == nil:
		case errors.Is(err, errHalfClosed):
			if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
				_ = half.CloseWrite() // the peer is gone: the next read reports it
			}
			<-c.closed
			_ = c.Conn.Close() // nothing is left to be lost
			return
		default:
			c.out.closeRead(err)
			_ = c.Conn.Close() // the first caller of Close got the error
			return
		}
	}
}

var errHalfClosed = errors.New("write side closed")

func (c *delayedConn) Read(p []byte) (int, error) {
	n, err := c.in.read(p)
	return n, c.wrap("read", err)
}

func (c *delayedConn) Write(p []byte) (int, error) {
	n, err := c.out.write(p)
	return n, c.wrap("write", err)
}

func (c *delayedConn) wrap(op string, err error) error {
	if _, ok := errors.AsType[*net.OpError](err); ok {
		return err // the inner connection's error is complete
	}
	return opError(op, c.LocalAddr(), c.RemoteAddr(), err)
}

// CloseWrite ends this end's stream after what is under way.
func (c *delayedConn) CloseWrite() error {
	c.out.closeWrite(errHalfClosed, net.ErrClosed)
	return nil
}

// Close returns at once. What was written before still goes out when it is due.
func (c *delayedConn) Close() error {
	c.closing.Do(func() {
		close(c.closed)
		c.in.closeRead(net.ErrClosed)
		c.out.closeWrite(io.EOF, net.ErrClosed)
		now := time.Now()
		_ = c.Conn.SetReadDeadline(now) // lets pumpIn go
		_ = c.Conn.SetWriteDeadline(now.Add(c.out.delay + linger))
	})
	return nil
}

func (c *delayedConn) SetDeadline(t time.Time) error {
	c.in.setReadDeadline(t)
	c.out.setWriteDeadline(t)
	return nil
}

func (c *delayedConn) SetReadDeadline(t time.Time) error {
	c.in.setReadDeadline(t)
	return nil
}

func (c *delayedConn) SetWriteDeadline(t time.Time) error {
	c.out.setWriteDeadline(t)
	return nil
}
