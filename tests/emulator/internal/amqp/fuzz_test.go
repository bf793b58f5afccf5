package amqp

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"testing"
	"time"
)

// values counts v and everything in it: what decoding it had to allocate.
func values(v any) int {
	n := 1
	switch v := v.(type) {
	case []any:
		for _, x := range v {
			n += values(x)
		}
	case Array:
		for _, x := range v {
			n += values(x)
		}
	case map[any]any:
		for k, x := range v {
			n += values(k) + values(x)
		}
	case Described:
		n += values(v.Descriptor) + values(v.Value)
	}
	return n
}

// FuzzAny: no input makes the decoder panic or hold more values than it has bytes, and Skip and Any
// agree on where a value ends.
func FuzzAny(f *testing.F) {
	for _, v := range []any{
		nil, "text",
		[]any{uint64(1), "x"},
		map[any]any{"k": int32(1)},
		Array{"a", "b"},
		Described{Descriptor: uint64(0x28), Value: []any{"queue"}},
		[]byte{1},
		UUID{},
	} {
		b, err := AppendAny(nil, v)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		decoded, skipped := NewReader(b), NewReader(b)
		v, err := decoded.Any()
		if err != nil {
			if !errors.Is(err, ErrMalformed) {
				t.Fatalf("error of another kind: %v", err)
			}
			return
		}
		if n := values(v); n > len(b) {
			t.Fatalf("%d values of %d bytes", n, len(b))
		}
		if err := skipped.Skip(); err != nil || skipped.Len() != decoded.Len() {
			t.Fatalf("Any left %d, Skip left %d: %v", decoded.Len(), skipped.Len(), err)
		}
		again, err := AppendAny(nil, v)
		if err != nil {
			return // arrays of rare types
		}
		if _, err := NewReader(again).Any(); err != nil {
			t.Fatalf("our own encoding of %#v is malformed: %v", v, err)
		}
	})
}

// FuzzMessage: no input makes taking a message apart, or rewriting it, panic.
func FuzzMessage(f *testing.F) {
	b, err := clientMessage().MarshalBinary()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := ParseMessage(b)
		if err != nil {
			return
		}
		_, _ = m.ApplicationProperties()
		_, _, _ = m.Value()
		_ = m.EachData(func([]byte) error { return nil })
		if out, err := RewriteBare(m.Bare(), map[string]any{"k": "v"}); err == nil {
			if _, err := ParseMessage(out); err != nil {
				t.Fatalf("rewritten message is malformed: %v", err)
			}
		}
	})
}

// FuzzFrame: no input makes the frame reader panic or return more than the limit.
func FuzzFrame(f *testing.F) {
	f.Add(append([]byte(nil), heartbeat...))
	f.Add(clientFrames())
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		br := bufio.NewReaderSize(bytes.NewReader(b), MaxFrameSize)
		for {
			fr, err := readFrame(br, MaxFrameSize)
			if err != nil {
				return
			}
			if len(fr.body) > MaxFrameSize-frameHeaderSize {
				t.Fatalf("body of %d bytes", len(fr.body))
			}
		}
	})
}

// Whatever a client sends after a proper opening, Serve ends and does not panic.
func FuzzServe(f *testing.F) {
	f.Add(clientFrames())
	f.Fuzz(func(t *testing.T, b []byte) {
		c := &script{r: bytes.NewReader(append(clientOpening(), b...))}
		_ = Serve(t.Context(), c, Options{OnAttach: func(l *Link) LinkHandler {
			l.Accept(Terms{MaxMessageSize: 1 << 16, Credit: 10})
			return &echo{link: l}
		}})
	})
}

// echo settles what it gets and sends once for every new credit.
type echo struct{ link *Link }

func (e *echo) Transfer(d Delivery, _ []byte) { e.link.Dispose(d.ID, State{Outcome: Accepted}) }
func (e *echo) Settle(s Settlement)           { e.link.ReplySettled(s.DeliveryID, s.State) }
func (e *echo) Credit()                       { e.link.Send([]byte{1}, false, make([]byte, 100)) }
func (e *echo) Detached()                     {}

// script is a connection whose client has already sent everything.
type script struct {
	r io.Reader
}

func (s *script) Read(b []byte) (int, error)       { return s.r.Read(b) }
func (s *script) Write(b []byte) (int, error)      { return len(b), nil }
func (s *script) Close() error                     { return nil }
func (s *script) LocalAddr() net.Addr              { return nil }
func (s *script) RemoteAddr() net.Addr             { return nil }
func (s *script) SetDeadline(time.Time) error      { return nil }
func (s *script) SetReadDeadline(time.Time) error  { return nil }
func (s *script) SetWriteDeadline(time.Time) error { return nil }

// clientOpening returns what a client sends up to its open frame.
func clientOpening() []byte {
	open := Open{ContainerID: "client", Hostname: "h", MaxFrameSize: 1024, ChannelMax: 10}
	b, err := open.append(beginFrame(append([]byte(nil), headerAMQP...), frameAMQP, 0))
	if err != nil {
		panic(err)
	}
	return endFrame(b, len(headerAMQP))
}

// clientFrames returns a begin, a link each way, a message, credit, a settlement and the ends.
func clientFrames() []byte {
	var out []byte
	add := func(body func([]byte) ([]byte, error)) {
		at := len(out)
		b, err := body(beginFrame(out, frameAMQP, 1))
		if err != nil {
			panic(err)
		}
		out = endFrame(b, at)
	}
	plain := func(f func([]byte) []byte) func([]byte) ([]byte, error) {
		return func(b []byte) ([]byte, error) { return f(b), nil }
	}
	terminus := func(desc uint64) *Terminus { return &Terminus{Descriptor: desc, Fields: []any{"queue"}} }
	begin := Begin{IncomingWindow: 100, OutgoingWindow: 100, HandleMax: 10}
	add(plain(begin.append))
	sends := Attach{Name: "a", Handle: 0, Source: terminus(descSource), Target: terminus(descTarget)}
	add(sends.append)
	receives := Attach{Name: "b", Handle: 1, Receiver: true, ReceiverSettleMode: ReceiverSecond, Source: terminus(descSource), Target: terminus(descTarget)}
	add(receives.append)
	transfer := Transfer{Handle: 0, HasDeliveryID: true, Tag: []byte{1}, HasMessageFormat: true}
	add(func(b []byte) ([]byte, error) { return append(transfer.append(b), "payload"...), nil })
	flow := Flow{IncomingWindow: 100, OutgoingWindow: 100, Handle: 1, HasHandle: true, LinkCredit: 5, HasLinkCredit: true, Drain: true}
	add(plain(flow.append))
	disposition := Disposition{Receiver: true, First: 0, Last: 3, State: State{Outcome: Rejected, Err: &Error{Condition: "x", Info: map[string]any{"a": "b"}}}}
	add(disposition.append)
	detach := Detach{Handle: 1, Closed: true}
	add(detach.append)
	end := ending{descriptor: descEnd}
	add(end.append)
	closing := ending{descriptor: descClose, Err: &Error{Condition: CondInternalError}}
	add(closing.append)
	return out
}
