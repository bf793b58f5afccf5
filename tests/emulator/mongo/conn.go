package mongo

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/mongoerr"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/value"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/wire"
)

// conn is one client connection. Requests are served one after the other; a
// reader goroutine runs ahead only to notice that the client has gone.
type conn struct {
	srv *Server
	net net.Conn
	id  int32
	app string // application name of the handshake; written by the serving goroutine
	out []byte // reused between replies
}

// ServeConn serves one connection until it ends, and closes it.
func (s *Server) ServeConn(ctx context.Context, nc net.Conn) error {
	ctx, cancel := context.WithCancelCause(ctx)
	s.mu.Lock()
	s.lastConn++
	c := &conn{srv: s, net: nc, id: s.lastConn}
	s.conns[c] = struct{}{}
	s.mu.Unlock()

	var wg sync.WaitGroup
	stop := context.AfterFunc(ctx, func() { nc.Close() })
	requests := make(chan *wire.Message)
	wg.Go(func() {
		defer close(requests)
		r := &buffered{r: nc}
		for {
			m, err := r.message(nc)
			if err != nil {
				cancel(err)
				return
			}
			select {
			case requests <- m:
			case <-ctx.Done():
				return
			}
		}
	})
	err := c.serve(ctx, requests)
	cancel(err)
	nc.Close()
	wg.Wait()
	stop()
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
	if cause := context.Cause(ctx); err == nil && !errors.Is(cause, io.EOF) && !errors.Is(cause, net.ErrClosed) && !errors.Is(cause, context.Canceled) {
		err = cause
	}
	return err
}

var errCloseConnection = errors.New("close the connection")

func (c *conn) serve(ctx context.Context, requests <-chan *wire.Message) error {
	for m := range requests {
		for m != nil {
			reply, err := c.srv.dispatch(ctx, c, m)
			if errors.Is(err, errCloseConnection) || ctx.Err() != nil {
				return nil
			}
			if m.OpCode == wire.OpMsg && m.Flags&wire.MoreToCome != 0 {
				break
			}
			if m, err = c.answer(m, reply); err != nil {
				return nil // the client has gone
			}
		}
	}
	return nil
}

// answer writes a reply. It gives the request to serve next without being asked,
// when the client streams hellos.
func (c *conn) answer(m *wire.Message, reply bson.D) (*wire.Message, error) {
	id := c.srv.requests.Add(1)
	var next *wire.Message
	if m.OpCode == wire.OpQuery {
		c.out = wire.AppendReply(c.out[:0], id, m.RequestID, value.Encode(reply))
	} else {
		flags := uint32(0)
		if m.Flags&wire.ExhaustAllowed != 0 {
			if body, err := value.Decode(m.Body); err == nil {
				if again, ok := exhaust(body, reply); ok {
					flags = wire.MoreToCome
					next = &wire.Message{OpCode: m.OpCode, RequestID: id, Flags: m.Flags, Body: again}
				}
			}
		}
		c.out = wire.AppendMsg(c.out[:0], id, m.RequestID, flags, func(b []byte) []byte { return value.AppendDoc(b, reply) })
	}
	_, err := c.net.Write(c.out)
	if cap(c.out) > 4<<20 {
		c.out = nil
	}
	return next, err
}

// buffered reads ahead without a goroutine, so that a message costs few calls.
type buffered struct {
	r    io.Reader
	buf  [16 << 10]byte
	have []byte
}

// halfSent is how long a message may take from its first byte to its last.
const halfSent = time.Minute

// message waits for the next one as long as it takes to begin, and no longer than halfSent for its
// end.
func (b *buffered) message(nc net.Conn) (*wire.Message, error) {
	if err := b.fill(); err != nil {
		return nil, err
	}
	tooLong := time.AfterFunc(halfSent, func() { nc.Close() })
	defer tooLong.Stop()
	return wire.Read(b)
}

// fill waits until there is something to read.
func (b *buffered) fill() error {
	for len(b.have) == 0 {
		n, err := b.r.Read(b.buf[:])
		b.have = b.buf[:n]
		if n == 0 && err != nil {
			return err
		}
	}
	return nil
}

func (b *buffered) Read(p []byte) (int, error) {
	if len(b.have) == 0 {
		if len(p) >= len(b.buf) {
			return b.r.Read(p)
		}
		n, err := b.r.Read(b.buf[:])
		if n == 0 {
			return 0, err
		}
		b.have = b.buf[:n]
	}
	n := copy(p, b.have)
	b.have = b.have[n:]
	return n, nil
}

// errorReply returns the document of a failed command.
func errorReply(e *mongoerr.Error) bson.D {
	d := bson.D{
		{Key: "ok", Value: 0.0},
		{Key: "errmsg", Value: e.Msg},
		{Key: "code", Value: e.Code},
		{Key: "codeName", Value: mongoerr.Name(e.Code)},
	}
	d = append(d, e.Extra...)
	if len(e.Labels) > 0 {
		d = append(d, bson.E{Key: "errorLabels", Value: e.Labels})
	}
	return d
}

// helloReply describes this member to drivers.
func (s *Server) helloReply(c *conn, legacy bool) bson.D {
	primary, _ := s.primary()
	host := s.advertised()
	version, _, _ := s.topologyVersion()
	if s.opts.Mongos != nil {
		primary = true
	}
	var d bson.D
	if !s.opts.NoHello {
		d = bson.D{{Key: "helloOk", Value: true}}
	}
	if legacy {
		d = append(d, bson.E{Key: "ismaster", Value: primary})
	}
	d = append(d, bson.D{
		{Key: "isWritablePrimary", Value: primary},
		{Key: "topologyVersion", Value: bson.D{{Key: "processId", Value: s.topology.process}, {Key: "counter", Value: version}}},
	}...)
	if s.opts.Mongos != nil {
		d = append(d, bson.E{Key: "msg", Value: "isdbgrid"})
	} else {
		d = append(d, bson.D{
			{Key: "secondary", Value: !primary},
			{Key: "setName", Value: s.opts.ReplicaSet},
			{Key: "hosts", Value: []string{host}},
			{Key: "me", Value: host},
		}...)
		if primary {
			d = append(d, bson.E{Key: "primary", Value: host})
		}
	}
	return append(d, bson.D{
		{Key: "maxBsonObjectSize", Value: int32(value.MaxDocument)},
		{Key: "maxMessageSizeBytes", Value: int32(wire.MaxMessage)},
		{Key: "maxWriteBatchSize", Value: int32(maxWriteBatch)},
		{Key: "localTime", Value: time.Now()},
		{Key: "logicalSessionTimeoutMinutes", Value: int32(30)},
		{Key: "connectionId", Value: c.id},
		{Key: "minWireVersion", Value: int32(0)},
		{Key: "maxWireVersion", Value: s.opts.wire()},
		{Key: "readOnly", Value: false},
		{Key: "ok", Value: 1.0},
	}...)
}
