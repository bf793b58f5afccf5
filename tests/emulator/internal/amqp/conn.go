package amqp

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"time"
)

// Limits of a connection.
const (
	// MaxFrameSize is the size in bytes of the frames that we accept and, unless the peer accepts
	// less, send.
	MaxFrameSize = 65536
	channelMax   = 4999
	// outHighWater stops the reader while this many bytes wait to be written, so a client
	// that does not read cannot make us buffer without end.
	outHighWater = 8 << 20
	closeTimeout = time.Second
)

// Options configure Serve.
type Options struct {
	// ContainerID names this server in its open frame.
	ContainerID string
	// IdleTimeout is the time limit that we announce to the peer: without a frame for twice as long
	// the connection is closed [AMQP-2.4.5]. Default 4 min.
	IdleTimeout time.Duration
	// Ask is how often a flow with echo is sent in every session, which the client has to answer.
	// Default 2 min.
	Ask time.Duration
	// Terse leaves out the initial delivery count of links on which we send.
	Terse bool
	// Logger may be nil.
	Logger *slog.Logger
	// OnAttach is called in the reader's goroutine for every link the client opens. The
	// handler it returns must, at once or later, make exactly one call of Link.Accept or
	// Link.Refuse.
	OnAttach func(*Link) LinkHandler
	// Plain checks a name and a password, which a client may give by SASL PLAIN; nil: all are
	// wrong.
	Plain func(name, password string) bool
	// Trace, if set, returns what is added to the text of every error.
	Trace func() string
	// Refuse is the error with which the connection is closed as soon as it is open; nil: it is
	// served.
	Refuse *Error
}

// Conn is one server-side connection.
type Conn struct {
	nc   net.Conn
	opts Options
	log  *slog.Logger

	peerIdle     time.Duration // set once before the writer starts
	peerMaxFrame uint32        // set once before the writer starts

	mu       sync.Mutex
	drained  sync.Cond // out shrank or closing was set
	out      []byte
	closing  bool                // no frame may be appended any more
	sessions map[uint16]*session // by channel; both directions use the client's number
	links    int                 // of all sessions
	wake     chan struct{}       // capacity 1: out has bytes or closing was set
	read     chan struct{}       // closed when nothing is read any more
}

// Serve speaks AMQP on nc until the peer closes, an error occurs or ctx ends. In the last case it
// closes the connection with amqp:connection:forced, or with the [*Error] that is ctx's cause. It
// owns nc and joins everything it started. The error is nil if either side closed the connection in
// an orderly way.
func Serve(ctx context.Context, nc net.Conn, opts Options) error {
	if opts.IdleTimeout <= 0 {
		opts.IdleTimeout = 4 * time.Minute
	}
	if opts.Ask <= 0 {
		opts.Ask = 2 * time.Minute
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	c := &Conn{
		nc: nc, opts: opts, log: opts.Logger,
		sessions: make(map[uint16]*session), wake: make(chan struct{}, 1), read: make(chan struct{}),
	}
	c.drained.L = &c.mu
	defer nc.Close()
	// Until the writer runs there is nothing to send on shutdown; closing unblocks the reads.
	stopEarly := context.AfterFunc(ctx, func() { nc.Close() })
	br := bufio.NewReaderSize(nc, MaxFrameSize)
	err := c.handshake(br)
	if !stopEarly() || err != nil {
		return c.ended(ctx, err)
	}
	var wg sync.WaitGroup
	wg.Go(c.write)
	stop := context.AfterFunc(ctx, func() {
		reason, is := errors.AsType[*Error](context.Cause(ctx))
		if !is {
			reason = &Error{Condition: CondConnectionForced, Description: "the server is shutting down"}
		}
		c.shut(reason)
	})
	if opts.Refuse != nil {
		c.shut(opts.Refuse)
	}
	err = c.receive(br)
	close(c.read)
	stop()
	var fault *Error
	if errors.Is(err, ErrMalformed) {
		fault = &Error{Condition: CondDecodeError, Description: err.Error()}
	}
	errors.As(err, &fault)
	c.shut(fault)
	wg.Wait()
	c.detachAll()
	return c.ended(ctx, err)
}

func (c *Conn) ended(ctx context.Context, err error) error {
	if err == nil || errors.Is(err, io.EOF) || ctx.Err() != nil && errors.Is(err, net.ErrClosed) {
		return nil
	}
	return fmt.Errorf("serve amqp connection: %w", err)
}

// handshake negotiates and exchanges open frames.
func (c *Conn) handshake(br *bufio.Reader) error {
	if err := c.nc.SetReadDeadline(time.Now().Add(2 * c.opts.IdleTimeout)); err != nil {
		return fmt.Errorf("set read deadline: %w", err)
	}
	if err := negotiate(br, c.nc, c.opts.Plain); err != nil {
		return err
	}
	fr, err := readFrame(br, MaxFrameSize)
	if err != nil {
		return fmt.Errorf("read open: %w", err)
	}
	desc, f, err := readComposite(NewReader(fr.body))
	if err != nil {
		return fmt.Errorf("read open: %w", err)
	}
	if desc != descOpen {
		return malformed("want open, got %#x", desc)
	}
	var peer Open
	if err := peer.decode(&f); err != nil {
		return fmt.Errorf("read open: %w", err)
	}
	c.peerIdle = peer.IdleTimeout
	c.peerMaxFrame = MaxFrameSize
	if peer.MaxFrameSize != 0 {
		c.peerMaxFrame = min(c.peerMaxFrame, max(peer.MaxFrameSize, minMaxFrameSize))
	}
	open := Open{
		ContainerID: c.opts.ContainerID, MaxFrameSize: c.peerMaxFrame, ChannelMax: channelMax,
		IdleTimeout: c.opts.IdleTimeout,
	}
	b, err := open.append(beginFrame(nil, frameAMQP, 0))
	if err != nil {
		return err
	}
	c.out = endFrame(b, 0)
	c.wake <- struct{}{}
	return nil
}

// receive is the reader's loop; it returns nil after the peer's close.
func (c *Conn) receive(br *bufio.Reader) error {
	for {
		if br.Buffered() < frameHeaderSize {
			if err := c.nc.SetReadDeadline(time.Now().Add(2 * c.opts.IdleTimeout)); err != nil {
				return fmt.Errorf("set read deadline: %w", err)
			}
		}
		fr, err := readFrame(br, MaxFrameSize)
		if err != nil {
			return err
		}
		if fr.kind != frameAMQP {
			return malformed("frame type %d", fr.kind)
		}
		if len(fr.body) == 0 {
			continue
		}
		done, err := c.dispatch(fr)
		if done || err != nil {
			return err
		}
		c.mu.Lock()
		for len(c.out) > outHighWater && !c.closing {
			c.drained.Wait()
		}
		c.mu.Unlock()
	}
}

func (c *Conn) dispatch(fr frame) (done bool, err error) {
	r := NewReader(fr.body)
	desc, f, err := readComposite(r)
	if err != nil {
		return false, err
	}
	switch desc {
	case descClose:
		e := ending{}
		if err := e.decode(&f); err != nil {
			return false, err
		}
		if e.Err != nil {
			c.log.Debug("client closed the connection with an error", "condition", string(e.Err.Condition))
		}
		return true, nil
	case descOpen:
		return false, &Error{Condition: CondNotAllowed, Description: "second open"}
	}
	c.mu.Lock()
	s, closing := c.sessions[fr.channel], c.closing
	c.mu.Unlock()
	switch {
	case closing:
		return false, nil // after our close, everything except the peer's close is ignored [AMQP 2.4.3]
	case desc == descBegin:
		return false, c.begin(fr.channel, &f)
	case s == nil:
		return false, &Error{Condition: CondNotAllowed, Description: fmt.Sprintf("frame on channel %d, which has no session", fr.channel)}
	}
	return false, s.frame(desc, &f, r)
}

// write is the writer's goroutine: it drains out, sends heartbeats when idle, and closes nc at the
// end.
func (c *Conn) write() {
	defer c.nc.Close()
	var beat <-chan time.Time
	if c.peerIdle > 0 {
		t := time.NewTicker(c.peerIdle / 2)
		defer t.Stop()
		beat = t.C
	}
	ask := time.NewTicker(c.opts.Ask)
	defer ask.Stop()
	var spare []byte
	for {
		select {
		case <-c.wake:
		case <-ask.C:
			c.ask()
			continue
		case <-beat:
			if _, err := c.nc.Write(heartbeat); err != nil {
				return
			}
			continue
		}
		c.mu.Lock()
		buf, closing := c.out, c.closing
		c.out = spare[:0]
		c.drained.Broadcast()
		c.mu.Unlock()
		if len(buf) > 0 {
			if _, err := c.nc.Write(buf); err != nil {
				return // the reader fails as well, and reports it
			}
		}
		if closing {
			c.linger()
			return
		}
		if spare = buf; cap(spare) > outHighWater {
			spare = nil
		}
	}
}

// ask asks the client for the state of every session.
func (c *Conn) ask() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, channel := range slices.Sorted(maps.Keys(c.sessions)) {
		if s := c.sessions[channel]; !s.ended {
			s.ask()
		}
	}
}

// linger waits for the peer's close: a connection that is cut while the peer writes can take our
// close with it, unread.
func (c *Conn) linger() {
	timer := time.NewTimer(closeTimeout)
	defer timer.Stop()
	select {
	case <-c.read:
	case <-timer.C:
	}
}

// shut sends a close frame, once, and makes the writer finish. Nothing can be sent afterwards.
func (c *Conn) shut(reason *Error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing {
		return
	}
	c.appendEnding(0, descClose, reason)
	c.closing = true
	// A client that has stopped reading must not hold up the shutdown. When even this fails
	// the connection is already closed.
	_ = c.nc.SetWriteDeadline(time.Now().Add(closeTimeout))
	c.drained.Broadcast()
	c.signal()
}

// detachAll informs every link's handler that the link is gone.
func (c *Conn) detachAll() {
	c.mu.Lock()
	var gone []*Link
	for ch, s := range c.sessions {
		gone = append(gone, s.endLocked()...)
		delete(c.sessions, ch)
	}
	c.mu.Unlock()
	notifyDetached(gone)
}

// signal wakes the writer; c.mu is held or the caller does not mind losing the race.
func (c *Conn) signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// append writes one frame into out; c.mu must be held. It reports false once closing.
func (c *Conn) append(channel uint16, body func([]byte) ([]byte, error)) bool {
	if c.closing {
		return false
	}
	at := len(c.out)
	b, err := body(beginFrame(c.out, frameAMQP, channel))
	if err != nil {
		c.log.Error("frame could not be encoded", "error", err)
		c.out = c.out[:at]
		return false
	}
	c.out = endFrame(b, at)
	if frame := c.out[at:]; len(frame) > int(c.peerMaxFrame) {
		c.log.Error("frame exceeds the peer's limit", "bytes", len(frame), "limit", c.peerMaxFrame)
		c.out = c.out[:at]
		return false
	}
	c.signal()
	return true
}

// traced returns an error with the trace appended to its text; nil for nil.
func (c *Conn) traced(e *Error) *Error {
	if e == nil || c.opts.Trace == nil {
		return e
	}
	out := *e
	out.Description += c.opts.Trace()
	return &out
}

func (c *Conn) appendEnding(channel uint16, descriptor byte, reason *Error) {
	e := ending{descriptor: descriptor, Err: c.traced(reason)}
	c.append(channel, e.append)
}
