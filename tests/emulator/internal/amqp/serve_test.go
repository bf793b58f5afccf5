package amqp

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	goamqp "github.com/Azure/go-amqp"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/sluice-cdc/sluice/shared/virtualtime"
	"github.com/sluice-cdc/sluice/tests/emulator/netpipe"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serving runs Serve on one end of a pipe and returns the other. The server is joined when the
// test ends; its error goes to the returned channel.
func serving(t *testing.T, ctx context.Context, o Options) (net.Conn, <-chan error) {
	t.Helper()
	near, far := netpipe.Pipe()
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	var wg sync.WaitGroup
	wg.Go(func() { done <- Serve(ctx, far, o) })
	t.Cleanup(func() {
		cancel()
		_ = near.Close()
		wg.Wait()
	})
	return near, done
}

func TestViolationsAreAnsweredAtTheirLayer(t *testing.T) {
	attached := func(t *testing.T, credit uint32) *raw {
		r, _ := newRaw(t, echoing(credit))
		r.attachSender(3)
		desc, _ := r.next()
		require.Equal(t, uint64(descAttach), desc)
		return r
	}
	t.Run("message too large", func(t *testing.T) {
		r := attached(t, 5)
		p := first(3, 0)
		p.More = true
		r.transfer(p, make([]byte, 60))
		r.transfer(Transfer{Handle: 3}, make([]byte, 60))
		r.expectDetach(CondMessageSizeExceeded)
	})
	t.Run("message too large, and the link goes on", func(t *testing.T) {
		r, _ := newRaw(t, Options{OnAttach: func(l *Link) LinkHandler {
			l.Accept(Terms{MaxMessageSize: 100, RejectTooLarge: true, Credit: 5})
			return &echo{link: l}
		}})
		r.attachSender(3)
		desc, _ := r.next()
		require.Equal(t, uint64(descAttach), desc)
		next := func(id uint32) (d Disposition) {
			desc, f := r.next()
			require.Equal(t, uint64(descDisposition), desc)
			require.NoError(t, d.decode(f))
			require.Equal(t, id, d.First)
			return d
		}
		p := first(3, 0)
		p.More = true
		r.transfer(p, make([]byte, 60))
		r.transfer(Transfer{Handle: 3, More: true}, make([]byte, 60)) // 100 are passed here
		r.transfer(Transfer{Handle: 3}, make([]byte, 60))
		d := next(0)
		require.Equal(t, CondMessageSizeExceeded, d.State.Err.Condition)
		require.Contains(t, d.State.Err.Description, "size:180 bytes")
		r.transfer(first(3, 1), make([]byte, 100))
		require.Equal(t, Accepted, next(1).State.Outcome)
	})
	t.Run("transfer without credit", func(t *testing.T) {
		r := attached(t, 0)
		r.transfer(first(3, 0), nil)
		r.expectDetach(CondTransferLimit)
	})
	t.Run("transfer without tag", func(t *testing.T) {
		r := attached(t, 5)
		r.transfer(Transfer{Handle: 3}, nil)
		r.expectDetach(CondInvalidField)
	})
	t.Run("aborted message is forgotten", func(t *testing.T) {
		r := attached(t, 5)
		p := first(3, 0)
		p.More = true
		r.transfer(p, make([]byte, 60))
		r.send(func(b []byte) ([]byte, error) {
			b, at := beginComposite(b, descTransfer)
			b = AppendUint(b, 3)
			for range 8 {
				b = AppendNull(b)
			}
			return endCompound(AppendBool(b, true), at, 10), nil // aborted
		})
		r.transfer(first(3, 1), make([]byte, 60))
		desc, f := r.next()
		require.Equal(t, uint64(descDisposition), desc)
		var d Disposition
		require.NoError(t, d.decode(f))
		require.Equal(t, uint32(1), d.First)
	})
	t.Run("handle in use", func(t *testing.T) {
		r := attached(t, 5)
		r.attachSender(3)
		r.expectEnding(descEnd, CondHandleInUse)
	})
	t.Run("unknown handle", func(t *testing.T) {
		r := attached(t, 5)
		r.transfer(first(4, 0), nil)
		r.expectEnding(descEnd, CondUnattachedHandle)
	})
	t.Run("oversized frame", func(t *testing.T) {
		r := attached(t, 5)
		_, err := r.conn.Write([]byte{0x7f, 0xff, 0xff, 0xff, 2, 0, 0, 0})
		require.NoError(t, err)
		r.expectEnding(descClose, CondDecodeError)
	})
	t.Run("garbage performative", func(t *testing.T) {
		r := attached(t, 5)
		r.send(func(b []byte) ([]byte, error) { return append(b, "garbage"...), nil })
		r.expectEnding(descClose, CondDecodeError)
	})
	t.Run("unknown channel", func(t *testing.T) {
		r := attached(t, 5)
		_, err := r.conn.Write(clientFrames()[24:]) // anything on channel 1 but its begin
		require.NoError(t, err)
		desc, _ := r.next()
		require.Equal(t, uint64(descClose), desc)
	})
}

func TestNothingFollowsAnEnd(t *testing.T) {
	links := make(chan *Link, 1)
	r, _ := newRaw(t, Options{OnAttach: func(l *Link) LinkHandler {
		links <- l // answered later, or never
		return &echo{link: l}
	}})
	r.attachSender(0)
	l := <-links
	r.send((&ending{descriptor: descEnd}).append)
	desc, _ := r.next()
	require.Equal(t, uint64(descEnd), desc)
	require.False(t, l.Accept(Terms{MaxMessageSize: 1, Credit: 1}))
	l.Refuse(&Error{Condition: CondNotFound})
	l.Detach(&Error{Condition: CondDetachForced})
	l.Dispose(0, State{Outcome: Accepted})
	require.False(t, l.Send(nil, false, []byte("x")))
	r.send((&ending{descriptor: descClose}).append)
	desc, _ = r.next()
	require.Equal(t, uint64(descClose), desc, "and not a frame on the ended channel")
}

func TestNothingIsSentOnALinkOfAnEndedSession(t *testing.T) {
	for _, goodbye := range []uint64{descDetach, descEnd} {
		handlers := make(chan *flood, 1)
		r, _ := newRaw(t, Options{OnAttach: func(l *Link) LinkHandler {
			l.Accept(Terms{})
			h := &flood{echo: echo{link: l}, left: 1}
			handlers <- h
			return h
		}})
		l := r.attachReceiver()
		desc, _ := r.next()
		require.Equal(t, uint64(descTransfer), desc)
		if goodbye == descDetach {
			r.send((&Detach{Handle: l, Closed: true}).append)
		} else {
			r.send((&ending{descriptor: descEnd}).append)
		}
		desc, _ = r.next()
		require.Equal(t, goodbye, desc)
		link := (<-handlers).link
		require.False(t, link.Send(nil, true, []byte("x")))
		link.ReplySettled(0, State{Outcome: Accepted})
		r.send((&ending{descriptor: descClose}).append)
		desc, _ = r.next()
		require.Equal(t, uint64(descClose), desc)
	}
}

// gate is a handler whose Detached waits.
type gate struct {
	echo
	open chan struct{}
}

func (g *gate) Detached() { <-g.open }

// Once a client has received the end of its session, what its links held is free.
func TestAnswerToAnEndComesAfterTheRelease(t *testing.T) {
	for _, goodbye := range []uint64{descDetach, descEnd} {
		virtualtime.Test(t, func(t *testing.T) {
			g := &gate{open: make(chan struct{})}
			r, _ := newRaw(t, Options{OnAttach: func(l *Link) LinkHandler {
				l.Accept(Terms{})
				g.link = l
				return g
			}})
			h := r.attachReceiver()
			desc, _ := r.next()
			require.Equal(t, uint64(descTransfer), desc)
			if goodbye == descDetach {
				r.send((&Detach{Handle: h, Closed: true}).append)
			} else {
				r.send((&ending{descriptor: descEnd}).append)
			}
			virtualtime.Wait()
			require.NoError(t, r.conn.SetReadDeadline(time.Now().Add(time.Second)))
			_, err := r.br.Peek(1)
			require.ErrorIs(t, err, os.ErrDeadlineExceeded)
			require.NoError(t, r.conn.SetReadDeadline(time.Time{}))
			close(g.open)
			desc, _ = r.next()
			require.Equal(t, goodbye, desc)
			require.NoError(t, r.conn.Close())
		})
	}
}

func TestScriptedConversation(t *testing.T) {
	c := &script{r: bytes.NewReader(append(clientOpening(), clientFrames()...))}
	var attached int
	err := Serve(t.Context(), c, Options{OnAttach: func(l *Link) LinkHandler {
		attached++
		l.Accept(Terms{MaxMessageSize: 1 << 16, Credit: 10})
		return &echo{link: l}
	}})
	require.NoError(t, err)
	require.Equal(t, 2, attached)
}

// flood sends n messages as credit comes, and counts what it gets.
type flood struct {
	echo
	mu   sync.Mutex
	left int
	got  int
}

func (f *flood) Transfer(d Delivery, b []byte) {
	f.mu.Lock()
	f.got++
	f.mu.Unlock()
	f.echo.Transfer(d, b)
}

func (f *flood) Credit() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.left > 0 && f.link.Send([]byte{byte(f.left)}, true, goPayload(f.left)) {
		f.left--
	}
}

func goPayload(n int) []byte {
	b, err := goamqp.NewMessage(fmt.Append(nil, n)).MarshalBinary()
	if err != nil {
		panic(err)
	}
	return b
}

// The test uses more messages than a session window, both ways, with a credit larger than the
// window.
func TestWindowsHoldForMoreThanOneWindow(t *testing.T) {
	const n = 12_000
	handlers := make(chan *flood, 2)
	c, _ := serving(t, t.Context(), Options{OnAttach: func(l *Link) LinkHandler {
		l.Accept(Terms{MaxMessageSize: 1 << 16, Credit: n})
		h := &flood{echo: echo{link: l}, left: n}
		handlers <- h
		return h
	}})
	client, err := goamqp.NewConn(t.Context(), c, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, client.Close()) }()
	session, err := client.NewSession(t.Context(), nil)
	require.NoError(t, err)
	r, err := session.NewReceiver(t.Context(), "q", &goamqp.ReceiverOptions{Credit: n})
	require.NoError(t, err)
	for i := n; i > 0; i-- {
		m, err := r.Receive(t.Context(), nil)
		require.NoError(t, err)
		require.Equal(t, fmt.Sprint(i), string(m.GetData()))
	}
	<-handlers
	s, err := session.NewSender(t.Context(), "q", nil)
	require.NoError(t, err)
	receipts := make([]goamqp.SendReceipt, n)
	for i := range receipts {
		receipts[i], err = s.SendWithReceipt(t.Context(), goamqp.NewMessage([]byte("x")), nil)
		require.NoError(t, err)
	}
	for i := range receipts {
		_, err := receipts[i].Wait(t.Context())
		require.NoError(t, err)
	}
	h := <-handlers
	require.Equal(t, n, h.got)
}

// The client's window of 10 frames is smaller than its credit.
func TestClientWindowIsRespected(t *testing.T) {
	r, _ := newRaw(t, Options{OnAttach: func(l *Link) LinkHandler {
		l.Accept(Terms{})
		return &flood{echo: echo{link: l}, left: 25}
	}})
	a := Attach{
		Name: "l", Receiver: true, Source: &Terminus{Descriptor: descSource, Fields: []any{"q"}},
		Target: &Terminus{Descriptor: descTarget, Fields: []any{"q"}},
	}
	r.send(a.append)
	desc, _ := r.next()
	require.Equal(t, uint64(descAttach), desc)
	for received := uint32(0); received < 25; {
		flow := Flow{NextIncomingID: firstOutgoingID + received, HasNextIncomingID: true, IncomingWindow: 10}
		if received == 0 {
			flow.HasHandle, flow.LinkCredit, flow.HasLinkCredit = true, 100, true
		}
		r.send(func(b []byte) ([]byte, error) { return flow.append(b), nil })
		want := min(received+10, 25)
		for ; received < want; received++ {
			desc, f := r.next()
			require.Equal(t, uint64(descTransfer), desc)
			var p Transfer
			require.NoError(t, p.decode(f))
			require.Equal(t, received, p.DeliveryID)
		}
		// An echo is answered after everything that was sent before it.
		probe := Flow{
			NextIncomingID: firstOutgoingID + received, HasNextIncomingID: true, HasHandle: true,
			DeliveryCount: received, HasDeliveryCount: true, LinkCredit: 100, HasLinkCredit: true, Echo: true,
		}
		r.send(func(b []byte) ([]byte, error) { return probe.append(b), nil })
		fr, err := readFrame(r.br, MaxFrameSize)
		require.NoError(t, err)
		desc, _, err := readComposite(NewReader(fr.body))
		require.NoError(t, err)
		require.Equal(t, uint64(descFlow), desc, "more frames than the window")
	}
}

func TestDrainUsesUpTheCredit(t *testing.T) {
	handlers := make(chan *flood, 1)
	c, _ := serving(t, t.Context(), Options{OnAttach: func(l *Link) LinkHandler {
		l.Accept(Terms{})
		h := &flood{echo: echo{link: l}, left: 2}
		handlers <- h
		return h
	}})
	client, err := goamqp.NewConn(t.Context(), c, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, client.Close()) }()
	session, err := client.NewSession(t.Context(), nil)
	require.NoError(t, err)
	r, err := session.NewReceiver(t.Context(), "q", &goamqp.ReceiverOptions{Credit: -1})
	require.NoError(t, err)
	require.NoError(t, r.IssueCredit(10))
	for range 2 {
		_, err := r.Receive(t.Context(), nil)
		require.NoError(t, err)
	}
	require.NoError(t, r.DrainCredit(t.Context(), nil))
	require.Zero(t, (<-handlers).link.Credit())
	require.NoError(t, r.IssueCredit(1))
}

// AMQPNetLite gives its credit right after its attach, and a session may become available only much
// later.
func TestCreditBeforeTheAttachIsAnsweredCounts(t *testing.T) {
	for _, drains := range []bool{false, true} {
		links := make(chan *Link, 1)
		r, _ := newRaw(t, Options{OnAttach: func(l *Link) LinkHandler {
			links <- l
			return &flood{echo: echo{link: l}, left: 1}
		}})
		a := Attach{
			Name: "early", Handle: 7, Receiver: true, Source: &Terminus{Descriptor: descSource, Fields: []any{"q"}},
			Target: &Terminus{Descriptor: descTarget, Fields: []any{"q"}},
		}
		r.send(a.append)
		credit := Flow{HasNextIncomingID: true, IncomingWindow: 100, Handle: 7, HasHandle: true, LinkCredit: 2, HasLinkCredit: true, Drain: drains}
		r.send(func(b []byte) ([]byte, error) { return credit.append(b), nil })
		begin := Begin{HandleMax: 10} // answered after what came before it
		_, err := r.conn.Write(endFrame(begin.append(beginFrame(nil, frameAMQP, 1)), 0))
		require.NoError(t, err)
		desc, _ := r.next()
		require.Equal(t, uint64(descBegin), desc)
		l := <-links
		require.True(t, l.Accept(Terms{}))
		desc, _ = r.next()
		require.Equal(t, uint64(descAttach), desc)
		desc, _ = r.next()
		require.Equal(t, uint64(descTransfer), desc)
		want := 1
		if drains {
			want = 0
		}
		require.Equal(t, want, l.Credit())
	}
}

func TestOnlyASilentPeerIsDisconnected(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		near, far := netpipe.Pipe()
		done := make(chan error, 1)
		var wg sync.WaitGroup
		wg.Go(func() { done <- Serve(t.Context(), far, Options{IdleTimeout: time.Minute}) })
		client, err := goamqp.NewConn(t.Context(), near, nil)
		require.NoError(t, err)
		time.Sleep(time.Hour) // both sides beat
		_, err = client.NewSession(t.Context(), nil)
		require.NoError(t, err)
		require.NoError(t, client.Close())
		wg.Wait()
		require.NoError(t, <-done)

		near, far = netpipe.Pipe()
		start := time.Now()
		wg.Go(func() { done <- Serve(t.Context(), far, Options{IdleTimeout: time.Minute}) })
		_, err = near.Write(clientOpening())
		require.NoError(t, err)
		wg.Wait()
		require.Error(t, <-done)
		require.Equal(t, 2*time.Minute, time.Since(start))
		_ = near.Close()
	})
}

func TestShutdownSendsACloseToTheClient(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	c, done := serving(t, ctx, Options{})
	client, err := goamqp.NewConn(t.Context(), c, nil)
	require.NoError(t, err)
	cancel()
	<-client.Done()
	require.NoError(t, <-done)
	var connErr *goamqp.ConnError
	require.ErrorAs(t, client.Err(), &connErr)
	require.NotNil(t, connErr.RemoteErr)
	require.Equal(t, goamqp.ErrCondConnectionForced, connErr.RemoteErr.Condition)
}

// If the server knows no passwords, all are wrong.
func TestPasswordsAreRefusedIfNoneIsConfigured(t *testing.T) {
	c, _ := serving(t, t.Context(), Options{})
	client, err := goamqp.NewConn(t.Context(), c, &goamqp.ConnOptions{SASLType: goamqp.SASLTypeAnonymous()})
	require.NoError(t, err)
	require.NoError(t, client.Close())
	for want, method := range map[string]goamqp.SASLType{
		"code 0x1":                    goamqp.SASLTypePlain("u", "p"),
		"no supported auth mechanism": goamqp.SASLTypeXOAUTH2("u", "t", 512),
	} {
		c, _ = serving(t, t.Context(), Options{})
		_, err = goamqp.NewConn(t.Context(), c, &goamqp.ConnOptions{SASLType: method})
		require.ErrorContains(t, err, want)
	}
}

// The password of SASL PLAIN is checked, and a wrong one is refused.
func TestPlainChecksThePassword(t *testing.T) {
	plain := func(name, password string) bool { return name == "u" && password == "p" }
	for name, try := range map[string]struct {
		as goamqp.SASLType
		ok bool
	}{
		"right":      {goamqp.SASLTypePlain("u", "p"), true},
		"wrong name": {goamqp.SASLTypePlain("v", "p"), false},
		"wrong":      {goamqp.SASLTypePlain("u", "pp"), false},
		"empty":      {goamqp.SASLTypePlain("u", ""), false},
		"without":    {goamqp.SASLTypeAnonymous(), true}, // and then it has no rights before $cbs
	} {
		c, _ := serving(t, t.Context(), Options{Plain: plain})
		client, err := goamqp.NewConn(t.Context(), c, &goamqp.ConnOptions{SASLType: try.as})
		if !try.ok {
			require.Error(t, err, name)
			continue
		}
		require.NoError(t, err, name)
		require.NoError(t, client.Close())
	}
}

// A client that writes after the server has sent its close, and before it has read it, must not
// fail. The server waits for the client's close, and ignores everything else.
func TestTheServerWaitsForTheClientsClose(t *testing.T) {
	for name, answers := range map[string]bool{"the client answers": true, "it does not": false} {
		t.Run(name, func(t *testing.T) {
			virtualtime.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				attached := false
				c, done := serving(t, ctx, Options{OnAttach: func(*Link) LinkHandler { attached = true; return &echo{} }})
				_, err := c.Write(clientOpening())
				require.NoError(t, err)
				virtualtime.Wait()
				cancel()
				virtualtime.Wait()
				r := &raw{t: t, conn: c, br: bufio.NewReaderSize(c, MaxFrameSize)}
				r.send(func(b []byte) ([]byte, error) { return (&Begin{HandleMax: 10}).append(b), nil })
				r.attachSender(1)
				_, err = r.br.Discard(len(headerAMQP))
				require.NoError(t, err)
				desc, _ := r.next()
				require.Equal(t, uint64(descOpen), desc)
				r.expectEnding(descClose, CondConnectionForced)
				began, waits := time.Now(), closeTimeout
				if answers {
					r.send((&ending{descriptor: descClose}).append)
					waits = 0
				}
				require.NoError(t, <-done)
				require.Equal(t, waits, time.Since(began))
				require.False(t, attached)
				_, err = r.br.ReadByte()
				require.ErrorIs(t, err, io.EOF, "nothing comes behind the close")
			})
		})
	}
}
