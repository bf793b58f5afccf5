package netpipe

import (
	"io"
	"net"
	"time"
)

// pipeLimit is how many bytes a direction of a Pipe holds before its writer blocks.
const pipeLimit = 1 << 20

// Addr is the name of an end.
type Addr string

// Network returns "netpipe".
func (Addr) Network() string { return "netpipe" }

func (a Addr) String() string { return string(a) }

// Conn is one end of a connection in memory. It is safe for concurrent use.
type Conn struct {
	in, out       *queue
	local, remote net.Addr
}

var _ net.Conn = (*Conn)(nil)

// Pipe returns the two ends of a new connection. Unlike those of net.Pipe, its
// writes return at once until a megabyte waits unread.
func Pipe() (*Conn, *Conn) {
	return pipe("client", "server")
}

func pipe(client, server Addr) (*Conn, *Conn) {
	up, down := newQueue(pipeLimit, 0), newQueue(pipeLimit, 0)
	return &Conn{in: down, out: up, local: client, remote: server}, &Conn{in: up, out: down, local: server, remote: client}
}

// Read reads what has arrived. It returns io.EOF after the last byte of a peer
// that closed, an error matching net.ErrClosed after Close, and one matching
// os.ErrDeadlineExceeded past the deadline.
func (c *Conn) Read(p []byte) (int, error) {
	n, err := c.in.read(p)
	return n, opError("read", c.local, c.remote, err)
}

// Write queues a copy of p. It fails with io.ErrClosedPipe when the peer closed,
// else like Read.
func (c *Conn) Write(p []byte) (int, error) {
	n, err := c.out.write(p)
	return n, opError("write", c.local, c.remote, err)
}

// CloseWrite ends this end's stream; reading is still possible.
func (c *Conn) CloseWrite() error {
	c.out.closeWrite(io.EOF, net.ErrClosed)
	return nil
}

// Close ends both directions; the peer still gets what was written. It never
// blocks and never fails.
func (c *Conn) Close() error {
	c.out.closeWrite(io.EOF, net.ErrClosed)
	c.in.closeRead(io.ErrClosedPipe)
	return nil
}

// LocalAddr returns the name of this end.
func (c *Conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr returns the name of the other end.
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

// SetDeadline sets both deadlines.
func (c *Conn) SetDeadline(t time.Time) error {
	c.in.setReadDeadline(t)
	c.out.setWriteDeadline(t)
	return nil
}

// SetReadDeadline ends reads that wait, now and later, at t; zero is never.
func (c *Conn) SetReadDeadline(t time.Time) error {
	c.in.setReadDeadline(t)
	return nil
}

// SetWriteDeadline ends writes that wait, now and later, at t; zero is never.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	c.out.setWriteDeadline(t)
	return nil
}
