package amqp

import (
	"bufio"
	"io"
	"testing"
	"time"

	goamqp "github.com/Azure/go-amqp"
	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/virtualtime"
)

// A client must fail here if it uses the server's handles, ids or windows as its own, or needs a
// field that the service leaves out.
func TestTheServerUsesItsOwnNumbers(t *testing.T) {
	c, _ := serving(t, t.Context(), Options{Terse: true, OnAttach: func(l *Link) LinkHandler {
		l.Accept(Terms{MaxMessageSize: 1 << 20, Credit: 100})
		return &echo{link: l}
	}})
	r := &raw{t: t, conn: c, br: bufio.NewReaderSize(c, MaxFrameSize)}
	_, err := c.Write(clientOpening()) // max-frame-size is 1024
	require.NoError(t, err)
	_, err = io.ReadFull(r.br, make([]byte, len(headerAMQP)))
	require.NoError(t, err)
	desc, f := r.next()
	require.Equal(t, uint64(descOpen), desc)
	var open Open
	require.NoError(t, open.decode(f))
	require.Equal(t, Open{MaxFrameSize: 1024, ChannelMax: 4999, IdleTimeout: 4 * time.Minute}, open)

	begin := Begin{NextOutgoingID: 7, IncomingWindow: 10, OutgoingWindow: 20, HandleMax: 300}
	r.send(func(b []byte) ([]byte, error) { return begin.append(b), nil })
	desc, f = r.next()
	require.Equal(t, uint64(descBegin), desc)
	var began Begin
	require.NoError(t, began.decode(f))
	require.Equal(t, Begin{HasRemoteChannel: true, NextOutgoingID: 1, IncomingWindow: 5000, OutgoingWindow: 10, HandleMax: 255}, began)

	var ours []uint32
	attach := func(p Attach) Attach {
		p.Source, p.Target = &Terminus{Descriptor: descSource, Fields: []any{"q"}}, &Terminus{Descriptor: descTarget, Fields: []any{"q"}}
		r.send(p.append)
		desc, f := r.next()
		require.Equal(t, uint64(descAttach), desc)
		var answer Attach
		require.NoError(t, answer.decode(f))
		require.NotEqual(t, p.Handle, answer.Handle)
		require.Equal(t, p.Name, answer.Name)
		ours = append(ours, answer.Handle)
		return answer
	}
	plain := attach(Attach{Name: "without modes", Receiver: true, terse: terse{senderSettleMode: true, receiverSettleMode: true}})
	require.Equal(t, terse{senderSettleMode: true, receiverSettleMode: true}, plain.terse)
	modes := attach(Attach{Name: "with modes", Handle: 255, SenderSettleMode: SenderSettled, MaxMessageSize: 1000})
	require.Equal(t, terse{}, modes.terse)
	require.Equal(t, SenderSettled, modes.SenderSettleMode)
	require.EqualValues(t, 1000, modes.MaxMessageSize, "never above what the client stated")
	require.Equal(t, []uint32{1, 2}, ours)
	r.send((&Detach{Handle: 0, Closed: true}).append)
	desc, f = r.next()
	require.Equal(t, uint64(descDetach), desc)
	var gone Detach
	require.NoError(t, gone.decode(f))
	require.Equal(t, uint32(1), gone.Handle)
	attach(Attach{Name: "again", Handle: 9, Receiver: true})
	require.Equal(t, []uint32{1, 2, 1}, ours)

	r.attachSender(256)
	r.expectEnding(descEnd, CondResourceLimit)
}

// The service sends a flow with echo every couple of minutes in each session.
func TestClientsAnswerAFlowWithEcho(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		links := make(chan *Link, 1)
		c, _ := serving(t, t.Context(), Options{OnAttach: func(l *Link) LinkHandler {
			l.Accept(Terms{MaxMessageSize: 1 << 20, Credit: 100})
			links <- l
			return &echo{link: l}
		}})
		client, err := goamqp.NewConn(t.Context(), c, nil)
		require.NoError(t, err)
		session, err := client.NewSession(t.Context(), nil)
		require.NoError(t, err)
		_, err = session.NewSender(t.Context(), "q", nil)
		require.NoError(t, err)
		s := (<-links).sess
		time.Sleep(2*time.Minute - time.Second)
		s.conn.mu.Lock()
		heard := s.nextIncomingID
		s.nextIncomingID-- // which the client corrects in its answer
		s.conn.mu.Unlock()
		time.Sleep(2 * time.Second)
		virtualtime.Wait()
		s.conn.mu.Lock()
		require.Equal(t, heard, s.nextIncomingID, "the client has answered")
		require.False(t, s.asked)
		s.conn.mu.Unlock()
		require.NoError(t, client.Close())
	})
}
