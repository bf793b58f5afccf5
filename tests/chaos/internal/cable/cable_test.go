package cable_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/tests/chaos/internal/cable"
	"github.com/sluice-cdc/sluice/tests/chaos/internal/netns"
)

// world is a client's namespace, a servers' namespace, the cable between them, and a server that
// echoes at each address.
type world struct {
	*testing.T
	cable  *cable.Cable
	client *netns.Namespace
	ports  []string

	mu    sync.Mutex
	heard bytes.Buffer // guarded by mu: by all servers
}

func newWorld(t *testing.T) *world {
	t.Helper()
	netns.Require(t)
	w := &world{T: t, client: netns.ForTest(t.Context(), t, "client")}
	servers := netns.ForTest(t.Context(), t, "servers")
	var err error
	w.cable, err = cable.Plug(t.Context(), w.client, servers, 7, 1)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() {
		if err := w.cable.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	for _, addr := range w.cable.Servers() {
		l, err := servers.Listen(t.Context(), "tcp", addr.String()+":0")
		require.NoError(t, err)
		context.AfterFunc(ctx, func() { l.Close() })
		w.ports = append(w.ports, l.Addr().String())
		running.Go(func() { w.echo(ctx, l) })
	}
	return w
}

func (w *world) echo(ctx context.Context, l net.Listener) {
	var serving sync.WaitGroup
	defer serving.Wait()
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		context.AfterFunc(ctx, func() { c.Close() })
		serving.Go(func() {
			_, _ = io.Copy(io.MultiWriter(c, w), c)
			c.Close()
		})
	}
}

func (w *world) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.heard.Write(p)
}

func (w *world) hasHeard() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.heard.String()
}

func (w *world) dial(server int) net.Conn {
	w.Helper()
	c, err := w.client.Dial(w.Context(), "tcp", w.ports[server])
	require.NoError(w, err)
	w.Cleanup(func() { c.Close() })
	return c
}

func (w *world) set(server int, to cable.Conditions, directions ...cable.Direction) {
	for _, d := range directions {
		w.cable.Set(d, w.cable.Servers()[server], to)
	}
}

// ask sends a text and returns how long the echo took, at most within.
func ask(c net.Conn, text string, within time.Duration) (time.Duration, error) {
	began := time.Now()
	if _, err := io.WriteString(c, text); err != nil {
		return 0, err
	}
	if err := c.SetReadDeadline(began.Add(within)); err != nil {
		return 0, err
	}
	_, err := io.ReadFull(c, make([]byte, len(text)))
	return time.Since(began), err
}

const patience = 20 * time.Second

func TestADelayIsAddedToEachDirection(t *testing.T) {
	w := newWorld(t)
	c := w.dial(0)
	w.set(0, cable.Conditions{Delay: 150 * time.Millisecond}, cable.Both()...)
	took, err := ask(c, "hello", patience)
	require.NoError(t, err)
	require.GreaterOrEqual(t, took, 300*time.Millisecond)
}

// What was cut off arrives after the cut is healed: the kernels resend it, because neither side
// received an error.
func TestCutsAnswerNothingInEitherDirection(t *testing.T) {
	for name, test := range map[string]struct {
		cut     []cable.Direction
		arrives bool
	}{
		"both": {cable.Both(), false}, "requests": {[]cable.Direction{cable.Requests}, false}, "answers": {[]cable.Direction{cable.Answers}, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			c, other := w.dial(0), w.dial(1)
			w.set(0, cable.Conditions{Cut: true}, test.cut...)
			_, err := ask(c, "hello", 300*time.Millisecond)
			require.ErrorIs(t, err, os.ErrDeadlineExceeded, "an answer or an error arrived")
			require.Equal(t, test.arrives, w.hasHeard() == "hello")
			_, err = ask(other, "x", patience)
			require.NoError(t, err, "the cut also affects another server")

			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			_, err = w.client.Dial(ctx, "tcp", w.ports[0])
			var timedOut net.Error
			require.True(t, errors.As(err, &timedOut) && timedOut.Timeout(), "a new connection gets an error that reveals the cut: %v", err)

			w.set(0, cable.Conditions{}, cable.Both()...)
			require.NoError(t, c.SetReadDeadline(time.Now().Add(patience)))
			_, err = io.ReadFull(c, make([]byte, len("hello")))
			require.NoError(t, err)
		})
	}
}

func TestEverythingArrivesInOrderOverABadCable(t *testing.T) {
	w := newWorld(t)
	c := w.dial(0)
	w.set(0, cable.Conditions{Delay: 5 * time.Millisecond, Loss: 0.02, Late: 0.2, LateBy: 5 * time.Millisecond}, cable.Both()...)
	sent := make([]byte, 256<<10)
	for i := range sent {
		sent[i] = byte(i >> 8)
	}
	var sending sync.WaitGroup
	sending.Go(func() {
		if _, err := c.Write(sent); err != nil {
			t.Error(err)
		}
	})
	got := make([]byte, len(sent))
	require.NoError(t, c.SetReadDeadline(time.Now().Add(patience)))
	_, err := io.ReadFull(c, got)
	require.NoError(t, err)
	sending.Wait()
	require.True(t, bytes.Equal(sent, got))
	for _, d := range cable.Both() {
		n := w.cable.Count(d)
		require.Positive(t, n.Lost, "%+v", n)
		require.Positive(t, n.Late, "%+v", n)
	}
}

// As with a gateway that has forgotten a connection: it is dead for good without an error to either
// side, while new connections work.
func TestAForgottenConnectionIsDeadAndNewOnesAreNot(t *testing.T) {
	w := newWorld(t)
	c, other := w.dial(0), w.dial(1)
	for _, alive := range []net.Conn{c, other} {
		_, err := ask(alive, "x", patience)
		require.NoError(t, err)
	}
	w.cable.Forget(w.cable.Servers()[0])
	_, err := ask(c, "hello", 500*time.Millisecond)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.Equal(t, "xx", w.hasHeard())
	for _, alive := range []net.Conn{w.dial(0), other} {
		_, err := ask(alive, "y", patience)
		require.NoError(t, err)
	}
	require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Second)))
	_, err = c.Read(make([]byte, 1))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded, "the connection works again")
}
