//go:build !race || go1.27

package connection_test

import (
	"context"
	"net"
	"sync"
	"testing"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/servicebus"
	"github.com/sluice-cdc/sluice/shared/virtualtime"
)

// holding is a connection whose writes wait while it is held.
type holding struct {
	net.Conn
	mu   sync.Mutex
	held chan struct{} // nil: writes pass; guarded by mu
}

func (h *holding) hold() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.held = make(chan struct{})
}

func (h *holding) let() {
	h.mu.Lock()
	defer h.mu.Unlock()
	close(h.held)
	h.held = nil
}

func (h *holding) Write(p []byte) (int, error) {
	h.mu.Lock()
	held := h.held
	h.mu.Unlock()
	if held != nil {
		<-held
		return len(p), nil // it is in the buffers of this machine, as data for a dead peer is
	}
	return h.Conn.Write(p)
}

// The library's own Send waits for ever if its context ends at the moment at which the connection
// dies (go-amqp v1.7.0, Sender.send: the link's goroutine has ended and takes back no credit).
func TestASendEndsWithItsContextWhenTheConnectionDiesInThatMoment(t *testing.T) {
	for range 50 {
		withBus(t, func(b *bus) {
			var way *holding
			b.dialed = func(c net.Conn) net.Conn {
				way = &holding{Conn: c}
				return way
			}
			conn := b.connect()
			require.NoError(b, conn.Claim(b.Context(), queue))
			session, err := conn.Session(b.Context())
			require.NoError(b, err)
			other, err := conn.Session(b.Context())
			require.NoError(b, err)
			link, err := session.NewSender(b.Context(), queue, nil)
			require.NoError(b, err)
			virtualtime.Wait()

			way.hold()
			var using sync.WaitGroup
			ctx, cancel := context.WithCancel(b.Context())
			using.Go(func() { _ = other.Close(ctx) }) // occupies the connection's writer
			virtualtime.Wait()
			var sent error
			using.Go(func() { _, sent = servicebus.Send(ctx, link, amqp.NewMessage([]byte("x"))) })
			virtualtime.Wait()
			cancel()
			_ = way.Conn.Close() // the library's reader notices it, and its writer does not yet
			virtualtime.Wait()
			way.let()
			using.Wait()
			require.Error(b, sent)
			conn.Close(b.Context())
		})
	}
}
