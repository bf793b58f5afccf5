package conformance

import (
	"context"
	"net"
	"sync"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/azure"
	"github.com/sluice-cdc/sluice/shared/servicebus"
	"github.com/sluice-cdc/sluice/shared/virtualtime"
	"github.com/sluice-cdc/sluice/tests/emulator/netpipe"
	emulator "github.com/sluice-cdc/sluice/tests/emulator/servicebus"
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
		return len(p), nil // it is in the buffers of this machine, where a dead peer's data waits
	}
	return h.Conn.Write(p)
}

// The library's own Send waits for ever where its context ends in the moment in which the connection dies (go-amqp v1.7.0,
// Sender.send: the link's goroutine has ended and takes back no credit).
func TestASendEndsWithItsContextWhenTheConnectionDiesInThatMoment(t *testing.T) {
	for range 50 {
		virtualtime.Test(t, func(t *testing.T) {
			server, err := emulator.New(emulator.Config{Queues: []emulator.Queue{{Name: queue}}}, emulator.Options{})
			require.NoError(t, err)
			ctx, stop := context.WithCancel(t.Context())
			listener := netpipe.Listen("bus:5672")
			var serving sync.WaitGroup
			serving.Go(func() { _ = server.Run(ctx, listener) })
			var way *holding
			namespace, err := servicebus.New(
				azure.ServiceBus{ConnectionString: emulator.ConnectionString("bus:5672")}, nil, &azservicebus.ClientOptions{
					NewWebSocketConn: func(ctx context.Context, _ azservicebus.NewWebSocketConnArgs) (net.Conn, error) {
						c, err := listener.DialContext(ctx, "", "")
						way = &holding{Conn: c}
						return way, err
					},
				})
			require.NoError(t, err)
			conn, err := namespace.Connect(t.Context())
			require.NoError(t, err)
			require.NoError(t, conn.Claim(t.Context(), queue))
			session, err := conn.Session(t.Context())
			require.NoError(t, err)
			other, err := conn.Session(t.Context())
			require.NoError(t, err)
			link, err := session.NewSender(t.Context(), queue, nil)
			require.NoError(t, err)
			virtualtime.Wait()

			way.hold()
			var using sync.WaitGroup
			begin, cancel := context.WithCancel(t.Context())
			using.Go(func() { _ = other.Close(begin) }) // occupies the connection's writer
			virtualtime.Wait()
			var sent error
			using.Go(func() { _, sent = servicebus.Send(begin, link, amqp.NewMessage([]byte("x"))) })
			virtualtime.Wait()
			cancel()
			_ = way.Conn.Close() // the library's reader hears of it, and its writer does not yet
			virtualtime.Wait()
			way.let()
			using.Wait()
			require.Error(t, sent)
			conn.Close(t.Context())
			stop()
			serving.Wait()
		})
	}
}
