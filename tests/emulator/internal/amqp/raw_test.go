package amqp

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

// raw is a client that sends exactly what a test specifies.
type raw struct {
	t    *testing.T
	conn net.Conn
	br   *bufio.Reader
}

func newRaw(t *testing.T, o Options) (*raw, <-chan error) {
	t.Helper()
	c, done := serving(t, t.Context(), o)
	r := &raw{t: t, conn: c, br: bufio.NewReaderSize(c, MaxFrameSize)}
	_, err := c.Write(clientOpening())
	require.NoError(t, err)
	var header [8]byte
	_, err = io.ReadFull(r.br, header[:])
	require.NoError(t, err)
	require.Equal(t, headerAMQP, header[:])
	desc, _ := r.next()
	require.Equal(t, uint64(descOpen), desc)
	begin := Begin{IncomingWindow: 10, OutgoingWindow: 10, HandleMax: 10}
	r.send(func(b []byte) ([]byte, error) { return begin.append(b), nil })
	desc, _ = r.next()
	require.Equal(t, uint64(descBegin), desc)
	return r, done
}

func (r *raw) send(body func([]byte) ([]byte, error)) {
	r.t.Helper()
	b, err := body(beginFrame(nil, frameAMQP, 0))
	require.NoError(r.t, err)
	_, err = r.conn.Write(endFrame(b, 0))
	require.NoError(r.t, err)
}

func (r *raw) attachSender(handle uint32) {
	r.t.Helper()
	a := Attach{
		Name: fmt.Sprint("l", handle), Handle: handle, Source: &Terminus{Descriptor: descSource, Fields: []any{"q"}},
		Target: &Terminus{Descriptor: descTarget, Fields: []any{"q"}},
	}
	r.send(a.append)
}

// attachReceiver attaches a receiving link, gives it credit for 100 and returns its handle.
func (r *raw) attachReceiver() uint32 {
	r.t.Helper()
	a := Attach{
		Name: "r", Handle: 7, Receiver: true, Source: &Terminus{Descriptor: descSource, Fields: []any{"q"}},
		Target: &Terminus{Descriptor: descTarget, Fields: []any{"q"}},
	}
	r.send(a.append)
	desc, _ := r.next()
	require.Equal(r.t, uint64(descAttach), desc)
	flow := Flow{HasNextIncomingID: true, IncomingWindow: 100, Handle: 7, HasHandle: true, LinkCredit: 100, HasLinkCredit: true}
	r.send(func(b []byte) ([]byte, error) { return flow.append(b), nil })
	return 7
}

func (r *raw) transfer(p Transfer, payload []byte) {
	r.t.Helper()
	r.send(func(b []byte) ([]byte, error) { return append(p.append(b), payload...), nil })
}

// next returns the next frame that is not a flow.
func (r *raw) next() (uint64, *fields) {
	r.t.Helper()
	for {
		fr, err := readFrame(r.br, MaxFrameSize)
		require.NoError(r.t, err)
		desc, f, err := readComposite(NewReader(fr.body))
		require.NoError(r.t, err)
		if desc != descFlow {
			return desc, &f
		}
	}
}

func (r *raw) expectDetach(condition Symbol) {
	r.t.Helper()
	desc, f := r.next()
	require.Equal(r.t, uint64(descDetach), desc)
	var d Detach
	require.NoError(r.t, d.decode(f))
	require.NotNil(r.t, d.Err)
	require.Equal(r.t, condition, d.Err.Condition)
}

func (r *raw) expectEnding(descriptor uint64, condition Symbol) {
	r.t.Helper()
	desc, f := r.next()
	require.Equal(r.t, descriptor, desc)
	var e ending
	require.NoError(r.t, e.decode(f))
	require.NotNil(r.t, e.Err)
	require.Equal(r.t, condition, e.Err.Condition)
}

func echoing(credit uint32) Options {
	return Options{OnAttach: func(l *Link) LinkHandler {
		l.Accept(Terms{MaxMessageSize: 100, Credit: credit})
		return &echo{link: l}
	}}
}

func first(handle, id uint32) Transfer {
	return Transfer{Handle: handle, DeliveryID: id, HasDeliveryID: true, Tag: []byte{1}, HasMessageFormat: true}
}
