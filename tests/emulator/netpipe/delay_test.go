package netpipe

import (
	"bytes"
	"crypto/rand"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/virtualtime"
)

// dial makes a connection over l with a round trip of d; the server's end is
// the delayed one.
func dial(t *testing.T, d time.Duration) (client, server net.Conn, l *DelayListener) {
	t.Helper()
	inner := Listen("broker")
	delayed, ok := Delay(inner, d).(*DelayListener)
	require.True(t, ok)
	client, err := inner.DialContext(t.Context(), "", "")
	require.NoError(t, err)
	server, err = delayed.Accept()
	require.NoError(t, err)
	return client, server, delayed
}

func TestDelayIsExact(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		client, server, l := dial(t, 10*time.Millisecond)
		begin := time.Now()
		_, err := client.Write([]byte("ping"))
		require.NoError(t, err)
		buf := make([]byte, 4)
		_, err = io.ReadFull(server, buf)
		require.NoError(t, err)
		require.Equal(t, 5*time.Millisecond, time.Since(begin))
		_, err = server.Write([]byte("pong"))
		require.NoError(t, err)
		require.Equal(t, 5*time.Millisecond, time.Since(begin), "a write does not wait")
		_, err = io.ReadFull(client, buf)
		require.NoError(t, err)
		require.Equal(t, "pong", string(buf))
		require.Equal(t, 10*time.Millisecond, time.Since(begin))

		require.NoError(t, server.Close())
		_, err = client.Read(buf)
		require.ErrorIs(t, err, io.EOF)
		require.Equal(t, 15*time.Millisecond, time.Since(begin), "a close travels too")
		l.Wait()
	})
}

// Requests that do not wait for answers pay the round trip once, however many they are.
func TestDelayPipelines(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		const requests = 100
		client, server, l := dial(t, 20*time.Millisecond)
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = io.Copy(server, server) })
		begin := time.Now()
		sent := make([]byte, requests)
		_, _ = rand.Read(sent)
		for i := range sent {
			_, err := client.Write(sent[i : i+1])
			require.NoError(t, err)
			time.Sleep(time.Millisecond) // a request every millisecond
		}
		got := make([]byte, requests)
		_, err := io.ReadFull(client, got)
		require.NoError(t, err)
		require.Equal(t, sent, got)
		require.Equal(t, (requests-1)*time.Millisecond+20*time.Millisecond, time.Since(begin))
		require.NoError(t, client.Close())
		wg.Wait()
		require.NoError(t, server.Close())
		l.Wait()
	})
}

func TestDelayFlushesWhatWasWrittenBeforeClose(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		client, server, l := dial(t, time.Second)
		sent := make([]byte, 3*pumpSize)
		_, _ = rand.Read(sent)
		_, err := server.Write(sent)
		require.NoError(t, err)
		require.NoError(t, server.Close())
		_, err = server.Write([]byte("x"))
		require.ErrorIs(t, err, net.ErrClosed)
		_, err = server.Read(make([]byte, 1))
		require.ErrorIs(t, err, net.ErrClosed)
		got, err := io.ReadAll(client)
		require.NoError(t, err)
		require.True(t, bytes.Equal(sent, got))
		l.Wait()
	})
}

func TestDelayHalfClose(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		client, server, l := dial(t, time.Second)
		require.NoError(t, server.(*delayedConn).CloseWrite())
		_, err := client.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF)
		_, err = client.Write([]byte("y"))
		require.NoError(t, err)
		require.NoError(t, client.Close())
		got, err := io.ReadAll(server)
		require.NoError(t, err)
		require.Equal(t, "y", string(got))
		require.NoError(t, server.Close())
		l.Wait()
	})
}

func TestDelayCloseDoesNotWaitForADeafPeer(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		_, server, l := dial(t, time.Second) // the client never reads
		begin := time.Now()
		_, err := server.Write(make([]byte, 4*pipeLimit))
		require.NoError(t, err)
		require.NoError(t, server.Close())
		require.Zero(t, time.Since(begin))
		l.Wait()
		require.Equal(t, 500*time.Millisecond+linger, time.Since(begin))
	})
}

func TestDelayDeadline(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		client, server, l := dial(t, time.Second)
		_, err := client.Write([]byte("late"))
		require.NoError(t, err)
		require.NoError(t, server.SetReadDeadline(time.Now().Add(100*time.Millisecond)))
		_, err = server.Read(make([]byte, 4))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.NoError(t, server.SetDeadline(time.Time{}))
		n, err := server.Read(make([]byte, 4))
		require.NoError(t, err)
		require.Equal(t, 4, n)
		require.NoError(t, server.Close())
		l.Wait()
	})
}

func TestDelayOverTCP(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l := Delay(inner, 4*time.Millisecond).(*DelayListener)
	client, err := net.Dial("tcp", inner.Addr().String())
	require.NoError(t, err)
	server, err := l.Accept()
	require.NoError(t, err)
	var wg sync.WaitGroup
	wg.Go(func() {
		_, _ = io.Copy(server, server)
		_ = server.Close()
	})
	sent := make([]byte, 1<<20)
	_, _ = rand.Read(sent)
	begin := time.Now()
	wg.Go(func() {
		_, _ = client.Write(sent)
		_ = client.(*net.TCPConn).CloseWrite()
	})
	got, err := io.ReadAll(client)
	require.NoError(t, err)
	require.True(t, bytes.Equal(sent, got))
	require.GreaterOrEqual(t, time.Since(begin), 4*time.Millisecond)
	wg.Wait()
	require.NoError(t, client.Close())
	require.NoError(t, l.Close())
	l.Wait()
}

func TestNoDelayIsTheListenerItself(t *testing.T) {
	l := Listen("plain")
	require.Same(t, l, Delay(l, 0))
}
