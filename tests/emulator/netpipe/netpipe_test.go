package netpipe

import (
	"bytes"
	"context"
	"crypto/rand"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/sluice-cdc/sluice/shared/virtualtime"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPipeCarriesBytesInOrder(t *testing.T) {
	a, b := Pipe()
	sent := make([]byte, 5*pipeLimit+17) // the writer must block and continue
	_, _ = rand.Read(sent)
	var wg sync.WaitGroup
	wg.Go(func() {
		for rest := sent; len(rest) > 0; {
			n := min(len(rest), 70_001)
			if _, err := a.Write(rest[:n]); err != nil {
				t.Error(err)
				return
			}
			rest = rest[n:]
		}
		_ = a.CloseWrite()
	})
	got, err := io.ReadAll(b)
	require.NoError(t, err)
	require.True(t, bytes.Equal(sent, got))
	wg.Wait()
	_, err = b.Write([]byte("still open")) // half closed only
	require.NoError(t, err)
	require.NoError(t, b.Close())
	got, err = io.ReadAll(a)
	require.NoError(t, err)
	require.Equal(t, "still open", string(got))
}

func TestWritesNeverMix(t *testing.T) {
	a, b := Pipe()
	var wg sync.WaitGroup
	for _, c := range "xyz" {
		wg.Go(func() {
			_, err := a.Write(bytes.Repeat([]byte(string(c)), 2*pipeLimit))
			if err != nil {
				t.Error(err)
			}
		})
	}
	got := make([]byte, 6*pipeLimit)
	for i := 0; i < len(got); i += 4096 { // every piece wakes all the writers
		_, err := io.ReadFull(b, got[i:i+4096])
		require.NoError(t, err)
	}
	wg.Wait()
	for i := 0; i < len(got); i += 2 * pipeLimit {
		part := got[i : i+2*pipeLimit]
		require.Equal(t, len(part), bytes.Count(part, part[:1]), "a write came through in pieces")
	}
}

func TestCloseSemantics(t *testing.T) {
	a, b := Pipe()
	_, err := a.Write([]byte("last words"))
	require.NoError(t, err)
	require.NoError(t, a.Close())
	require.NoError(t, a.Close())

	_, err = a.Read(make([]byte, 1))
	require.ErrorIs(t, err, net.ErrClosed)
	_, err = a.Write([]byte("x"))
	require.ErrorIs(t, err, net.ErrClosed)
	_, err = b.Write([]byte("x"))
	require.ErrorIs(t, err, io.ErrClosedPipe)
	got, err := io.ReadAll(b)
	require.NoError(t, err)
	require.Equal(t, "last words", string(got))
}

func TestCloseWakesBlockedReadAndWrite(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		a, _ := Pipe()
		var wg sync.WaitGroup
		var readErr, writeErr, peerErr error
		wg.Go(func() { _, readErr = a.Read(make([]byte, 1)) })
		wg.Go(func() { _, writeErr = a.Write(make([]byte, 2*pipeLimit)) })
		virtualtime.Wait() // both are blocked
		require.NoError(t, a.Close())
		wg.Wait()
		require.ErrorIs(t, readErr, net.ErrClosed)
		require.ErrorIs(t, writeErr, net.ErrClosed)

		a, b := Pipe()
		wg.Go(func() { _, peerErr = a.Write(make([]byte, 2*pipeLimit)) })
		virtualtime.Wait()
		require.NoError(t, b.Close())
		wg.Wait()
		require.ErrorIs(t, peerErr, io.ErrClosedPipe)
	})
}

func TestDeadlines(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		a, _ := Pipe()
		begin := time.Now()
		require.NoError(t, a.SetReadDeadline(begin.Add(3*time.Second)))
		_, err := a.Read(make([]byte, 1))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		var netErr net.Error
		require.ErrorAs(t, err, &netErr)
		require.True(t, netErr.Timeout())
		require.Equal(t, 3*time.Second, time.Since(begin))

		require.NoError(t, a.SetWriteDeadline(time.Now().Add(2*time.Second)))
		n, err := a.Write(make([]byte, pipeLimit+1))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.Equal(t, pipeLimit, n, "the number of written bytes is returned")
		require.Equal(t, 5*time.Second, time.Since(begin))

		// A deadline set while a read waits ends that read; then it can be lifted.
		require.NoError(t, a.SetDeadline(time.Time{}))
		var wg sync.WaitGroup
		wg.Go(func() { _, err = a.Read(make([]byte, 1)) })
		virtualtime.Wait()
		require.NoError(t, a.SetReadDeadline(time.Now()))
		wg.Wait()
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.Equal(t, 5*time.Second, time.Since(begin))
	})
}

func TestListener(t *testing.T) {
	l := Listen("broker")
	first, err := l.DialContext(t.Context(), "tcp", "ignored:1")
	require.NoError(t, err)
	second, err := l.DialContext(t.Context(), "tcp", "ignored:1")
	require.NoError(t, err)
	server, err := l.Accept()
	require.NoError(t, err)
	_, err = first.Write([]byte("1"))
	require.NoError(t, err)
	got := make([]byte, 1)
	_, err = server.Read(got)
	require.NoError(t, err)
	require.Equal(t, "1", string(got), "connections are accepted in the order they were dialled")
	require.Equal(t, first.LocalAddr(), server.RemoteAddr())

	require.NoError(t, l.Close())
	_, err = l.Accept()
	require.ErrorIs(t, err, net.ErrClosed)
	_, err = second.Read(got)
	require.ErrorIs(t, err, io.EOF, "a connection that was not accepted is closed with the listener")
	_, err = l.DialContext(t.Context(), "tcp", "ignored:1")
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	_, err = server.Write([]byte("2"))
	require.NoError(t, err, "accepted connections outlive the listener")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = Listen("other").DialContext(ctx, "tcp", "")
	require.ErrorIs(t, err, context.Canceled)
}

// HTTP works over the listener in virtual time.
func TestHTTPInABubble(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		l := Listen("web")
		delayed := Delay(l, 40*time.Millisecond)
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })}
		var wg sync.WaitGroup
		wg.Go(func() { _ = server.Serve(delayed) })
		transport := &http.Transport{DialContext: l.DialContext}
		client := &http.Client{Transport: transport}
		for range 3 {
			begin := time.Now()
			resp, err := client.Get("http://web/")
			require.NoError(t, err)
			body, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Equal(t, "hello", string(body))
			require.Equal(t, 40*time.Millisecond, time.Since(begin))
		}
		transport.CloseIdleConnections()
		require.NoError(t, server.Close())
		wg.Wait()
		delayed.(*DelayListener).Wait()
	})
}
