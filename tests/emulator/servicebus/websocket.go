package servicebus

import (
	"bufio"
	"context"
	"crypto/sha1" //nolint:gosec // what the handshake of RFC 6455 asks for; nothing rests on it
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
)

const (
	websocketPath = "/$servicebus/websocket"
	websocketGUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11" // [RFC6455-1.3]
	maxControl    = 125
	maxFrame      = 16 << 20

	opContinuation = 0
	opBinary       = 2
	opClose        = 8
	opPing         = 9
	opPong         = 10
)

// upgrade serves AMQP over a WebSocket until it closes or ctx ends. Clients put
// their tokens over AMQP, so the HTTP request needs none.
func (s *Server) upgrade(ctx context.Context, w http.ResponseWriter, r *http.Request) {
	key := r.Header.Get("Sec-WebSocket-Key")
	h, is := w.(http.Hijacker)
	if !is || !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") || key == "" || r.Header.Get("Sec-WebSocket-Version") != "13" {
		http.Error(w, "a WebSocket handshake of version 13 is needed", http.StatusBadRequest)
		return
	}
	c, rw, err := h.Hijack()
	if err != nil {
		s.log.Debug("websocket upgrade failed", "error", err)
		return
	}
	sum := sha1.Sum([]byte(key + websocketGUID)) //nolint:gosec // see above
	var answer strings.Builder
	answer.WriteString("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: " +
		base64.StdEncoding.EncodeToString(sum[:]) + "\r\n")
	// The service's own subprotocol, or that of AMQP's WebSocket binding.
	for p := range strings.SplitSeq(r.Header.Get("Sec-WebSocket-Protocol"), ",") {
		if p = strings.TrimSpace(p); strings.EqualFold(p, "amqp") || strings.EqualFold(p, "AMQPWSB10") {
			answer.WriteString("Sec-WebSocket-Protocol: " + p + "\r\n")
			break
		}
	}
	if _, err := io.WriteString(c, answer.String()+"\r\n"); err != nil {
		c.Close()
		return
	}
	if err := s.ServeConn(ctx, &websocketConn{Conn: c, r: rw.Reader}); err != nil {
		s.log.Debug("connection ended", "error", err)
	}
}

// websocketConn is the bytes of a WebSocket's binary messages. One goroutine reads; writes are
// whole frames under mu.
type websocketConn struct {
	net.Conn
	r    *bufio.Reader
	left uint64 // of the frame being read
	mask [4]byte
	at   int // into mask

	mu  sync.Mutex
	buf []byte
}

func (c *websocketConn) Read(b []byte) (int, error) {
	for c.left == 0 {
		if err := c.next(); err != nil {
			return 0, err
		}
	}
	n, err := c.r.Read(b[:min(uint64(len(b)), c.left)])
	for i := range b[:n] {
		b[i] ^= c.mask[c.at&3]
		c.at++
	}
	c.left -= uint64(n)
	return n, err
}

// next reads a frame's head, and the whole of a control frame [RFC6455-5.2].
func (c *websocketConn) next() error {
	var head [8]byte
	if _, err := io.ReadFull(c.r, head[:2]); err != nil {
		return err
	}
	op, size := head[0]&0x0f, uint64(head[1]&0x7f)
	if head[1]&0x80 == 0 {
		return errors.New("websocket: a client's frame is not masked") // [RFC6455-5.1]
	}
	switch size {
	case 126:
		if _, err := io.ReadFull(c.r, head[:2]); err != nil {
			return err
		}
		size = uint64(binary.BigEndian.Uint16(head[:]))
	case 127:
		if _, err := io.ReadFull(c.r, head[:8]); err != nil {
			return err
		}
		size = binary.BigEndian.Uint64(head[:])
	}
	if size > maxFrame || op >= opClose && size > maxControl {
		return fmt.Errorf("websocket: a frame of %d bytes", size)
	}
	if _, err := io.ReadFull(c.r, c.mask[:]); err != nil {
		return err
	}
	c.at = 0
	switch op {
	case opBinary, opContinuation:
		c.left = size
		return nil
	case opClose, opPing, opPong:
		body := make([]byte, size)
		if _, err := io.ReadFull(c.r, body); err != nil {
			return err
		}
		for i := range body {
			body[i] ^= c.mask[i&3]
		}
		return c.control(op, body)
	}
	return fmt.Errorf("websocket: opcode %d is not supported", op)
}

func (c *websocketConn) control(op byte, body []byte) error {
	switch op {
	case opPing:
		return c.frame(opPong, body)
	case opClose:
		_ = c.frame(opClose, body) // the peer may be gone already
		return io.EOF
	}
	return nil
}

func (c *websocketConn) Write(b []byte) (int, error) {
	if err := c.frame(opBinary, b); err != nil {
		return 0, err
	}
	return len(b), nil
}

func (c *websocketConn) frame(op byte, b []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.buf = append(c.buf[:0], 0x80|op)
	switch {
	case len(b) <= maxControl:
		c.buf = append(c.buf, byte(len(b)))
	case len(b) < 1<<16:
		c.buf = binary.BigEndian.AppendUint16(append(c.buf, 126), uint16(len(b)))
	default:
		c.buf = binary.BigEndian.AppendUint64(append(c.buf, 127), uint64(len(b)))
	}
	c.buf = append(c.buf, b...)
	_, err := c.Conn.Write(c.buf)
	return err
}
