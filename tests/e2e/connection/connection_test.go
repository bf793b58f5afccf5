//go:build !race || go1.27

package connection_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/azure"
	"github.com/sluice-cdc/sluice/shared/servicebus"
	"github.com/sluice-cdc/sluice/shared/virtualtime"
	"github.com/sluice-cdc/sluice/tests/emulator/netpipe"
	emulator "github.com/sluice-cdc/sluice/tests/emulator/servicebus"
)

const (
	trip  = 100 * time.Millisecond
	queue = "work"
)

// bus is the embedded Service Bus, a round trip away, in virtual time.
type bus struct {
	*testing.T
	server    *emulator.Server
	namespace *servicebus.Namespace
	silent    atomic.Bool             // what is written vanishes without an error
	dialed    func(net.Conn) net.Conn // wraps a connection; nil: it does not
}

// blackHole is a connection whose writes may vanish.
type blackHole struct {
	net.Conn
	silent *atomic.Bool
}

func (b blackHole) Write(p []byte) (int, error) {
	if b.silent.Load() {
		return len(p), nil
	}
	return b.Conn.Write(p)
}

func withBus(t *testing.T, f func(b *bus)) {
	t.Helper()
	virtualtime.Test(t, func(t *testing.T) {
		server, err := emulator.New(emulator.Config{Queues: []emulator.Queue{
			{Name: queue, Outbound: emulator.Outbound{LockDuration: 30 * time.Second, MaxDeliveryCount: 3}},
		}}, emulator.Options{})
		require.NoError(t, err)
		ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
		listener := netpipe.Listen("bus:5672")
		delayed := netpipe.Delay(listener, trip)
		var serving sync.WaitGroup
		serving.Go(func() {
			if err := server.Run(ctx, delayed); err != nil {
				t.Errorf("run the server: %v", err)
			}
		})
		b := &bus{T: t, server: server}
		b.namespace, err = servicebus.New(
			azure.ServiceBus{ConnectionString: emulator.ConnectionString("bus:5672")}, nil, &azservicebus.ClientOptions{
				NewWebSocketConn: func(ctx context.Context, _ azservicebus.NewWebSocketConnArgs) (net.Conn, error) {
					c, err := listener.DialContext(ctx, "", "")
					if b.dialed != nil && err == nil {
						c = b.dialed(c)
					}
					return blackHole{c, &b.silent}, err
				},
			})
		require.NoError(t, err)
		f(b)
		stop()
		serving.Wait()
		delayed.(*netpipe.DelayListener).Wait()
	})
}

func (b *bus) connect() *servicebus.Conn {
	b.Helper()
	conn, err := b.namespace.Connect(b.Context())
	require.NoError(b, err)
	return conn
}

// trips counts the round trips of a function.
func (b *bus) trips(what func() error) int {
	b.Helper()
	began := time.Now()
	require.NoError(b, what())
	return int(time.Since(began) / trip)
}

func TestTheRightToUseAnEntityIsClaimedOnce(t *testing.T) {
	withBus(t, func(b *bus) {
		conn := b.connect()
		require.Equal(b, 6, b.trips(func() error { return conn.Claim(b.Context(), queue) }), "a session, two links, two tokens, the end")
		require.Zero(b, b.trips(func() error { return conn.Claim(b.Context(), queue) }))
		conn.Close(b.Context())
	})
}

func TestAnAMQPSessionIsReused(t *testing.T) {
	withBus(t, func(b *bus) {
		conn := b.connect()
		var kept *servicebus.Session
		lend := func() (err error) { kept, err = conn.Session(b.Context()); return err }
		require.Equal(b, 1, b.trips(lend))
		require.True(b, conn.ReturnSession(kept, 0))
		require.Zero(b, b.trips(lend))
		require.False(b, conn.ReturnSession(kept, 1000), "go-amqp remembers what was not settled")
		conn.Close(b.Context())
	})
}

// A caller that waits for another one's claim waits no longer than its context, even while the
// other one waits for the network.
func TestTheWaitForAnotherOnesClaimEndsWithItsContext(t *testing.T) {
	withBus(t, func(b *bus) {
		conn := b.connect()
		b.silent.Store(true)
		var first sync.WaitGroup
		first.Go(func() {
			ctx, cancel := context.WithTimeout(b.Context(), time.Hour)
			defer cancel()
			if err := conn.Claim(ctx, queue); err == nil {
				b.Error("claimed over a network that is silent")
			}
		})
		virtualtime.Wait() // it is under way
		began := time.Now()
		ctx, cancel := context.WithTimeout(b.Context(), time.Second)
		defer cancel()
		require.ErrorIs(b, conn.Claim(ctx, queue), context.DeadlineExceeded)
		require.Equal(b, time.Second, time.Since(began))
		closing, cancelClosing := context.WithTimeout(b.Context(), time.Second)
		defer cancelClosing()
		conn.Close(closing)
		first.Wait()
	})
}

// A link stays open for longer than any token is valid, since tokens are renewed; otherwise the
// broker would detach it.
func TestTokensAreRenewedBeforeTheyEnd(t *testing.T) {
	withBus(t, func(b *bus) {
		conn := b.connect()
		require.NoError(b, conn.Claim(b.Context(), queue))
		session, err := conn.Session(b.Context())
		require.NoError(b, err)
		link, err := session.NewReceiver(b.Context(), queue, &amqp.ReceiverOptions{Credit: 1})
		require.NoError(b, err)
		ctx, cancel := context.WithTimeout(b.Context(), 6*time.Hour)
		defer cancel()
		_, err = link.Receive(ctx, nil) // nothing is there
		require.ErrorIs(b, err, context.DeadlineExceeded)
		require.NoError(b, conn.Err())
		conn.Close(b.Context())
	})
}

// A request that the management node refuses is an answer; links to it that end are opened again.
func TestTheManagementNodeIsAskedAgainAfterItsLinkEnded(t *testing.T) {
	withBus(t, func(b *bus) {
		conn := b.connect()
		require.NoError(b, conn.Claim(b.Context(), queue))
		peek := func() error {
			ctx, cancel := context.WithTimeout(b.Context(), 5*time.Second)
			defer cancel()
			_, err := conn.Manage(ctx, queue, "com.microsoft:peek-message", "unused", map[string]any{
				"from-sequence-number": int64(1), "message-count": int32(1),
			})
			return err
		}
		require.Equal(b, 4, b.trips(peek), "a session, two links, the request")
		require.Equal(b, 1, b.trips(peek))
		_, err := conn.Manage(b.Context(), queue, "com.microsoft:no-such-thing", "unused", nil)
		refused, ok := errors.AsType[*servicebus.StatusError](err)
		require.True(b, ok, "%v", err)
		require.Contains(b, refused.Description, "no-such-thing")

		end := b.server.Inject(emulator.Faults{Manage: emulator.Fault{Detach: 1}})
		require.Error(b, peek())
		end()
		require.Equal(b, 4, b.trips(peek), "all of it again")
		require.NoError(b, conn.Err(), "the connection outlives its links")
		conn.Close(b.Context())
	})
}

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
