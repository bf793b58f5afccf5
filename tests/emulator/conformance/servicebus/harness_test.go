package servicebus_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/sluice-cdc/sluice/shared/virtualtime"
	"github.com/sluice-cdc/sluice/tests/emulator/netpipe"
	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	topic        = "changes"
	subscription = "projector"
	subPath      = topic + "/Subscriptions/" + subscription
	queue        = "work"
	sessionQueue = "lanes"
)

// standard returns a namespace with one entity of each kind, with locks of 30 s.
func standard() servicebus.Config {
	lock := 30 * time.Second
	out := servicebus.Outbound{LockDuration: lock, MaxDeliveryCount: 3}
	withSessions := out
	withSessions.RequiresSession = true
	return servicebus.Config{
		Queues: []servicebus.Queue{
			{Name: queue, Outbound: out},
			{Name: sessionQueue, Outbound: withSessions},
		},
		Topics: []servicebus.Topic{{
			Name: topic,
			Inbound: servicebus.Inbound{
				RequiresDuplicateDetection: true, DuplicateDetectionWindow: time.Minute,
			},
			Subscriptions: []servicebus.Subscription{{Name: subscription, Outbound: withSessions}},
		}},
	}
}

// world is a server and a client of the real SDK.
type world struct {
	t      *testing.T
	server *servicebus.Server
	client *azservicebus.Client
	// dial makes a bare connection.
	dial func(context.Context) (net.Conn, error)
	// connect makes another client on a connection of its own.
	connect func(*azservicebus.ClientOptions) *azservicebus.Client
}

// inBubble runs f in virtual time: waiting for a lock to run out takes no time at all.
func inBubble(t *testing.T, cfg servicebus.Config, opts servicebus.Options, f func(t *testing.T, w *world)) {
	t.Helper()
	virtualtime.Test(t, func(t *testing.T) {
		s, err := servicebus.New(cfg, opts)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		l := netpipe.Listen("emulator")
		wg.Go(func() {
			if err := s.Run(ctx, l); err != nil {
				t.Errorf("run server: %v", err)
			}
		})
		var clients []*azservicebus.Client
		w := &world{t: t, server: s}
		w.dial = func(ctx context.Context) (net.Conn, error) { return l.DialContext(ctx, "", "") }
		w.connect = func(o *azservicebus.ClientOptions) *azservicebus.Client {
			if o == nil {
				o = &azservicebus.ClientOptions{}
			}
			o.NewWebSocketConn = func(ctx context.Context, _ azservicebus.NewWebSocketConnArgs) (net.Conn, error) {
				return w.dial(ctx)
			}
			c, err := azservicebus.NewClientFromConnectionString(servicebus.ConnectionString("emulator:5672"), o)
			require.NoError(t, err)
			clients = append(clients, c)
			return c
		}
		w.client = w.connect(nil)
		defer func() {
			for _, c := range clients {
				_ = c.Close(t.Context())
			}
			cancel()
			wg.Wait()
		}()
		f(t, w)
	})
}

// onTCP returns a server with a listener on TCP, in real time, and a client of it.
func onTCP(tb testing.TB, cfg servicebus.Config, opts servicebus.Options) (*servicebus.Server, *azservicebus.Client) {
	tb.Helper()
	s, err := servicebus.New(cfg, opts)
	require.NoError(tb, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(tb, err)
	// The test's own context ends before the clean-up, in which the client still closes.
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context()))
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.Run(ctx, l); err != nil {
			tb.Errorf("run server: %v", err)
		}
	})
	c, err := azservicebus.NewClientFromConnectionString(servicebus.ConnectionString(l.Addr().String()), &azservicebus.ClientOptions{
		RetryOptions: azservicebus.RetryOptions{RetryDelay: 10 * time.Millisecond},
	})
	require.NoError(tb, err)
	tb.Cleanup(func() {
		_ = c.Close(ctx)
		cancel()
		wg.Wait()
	})
	return s, c
}

func (w *world) sender(entity string) *azservicebus.Sender {
	s, err := w.client.NewSender(entity, nil)
	require.NoError(w.t, err)
	return s
}

// message makes one for a session, with a body and an id.
func message(session, id string) *azservicebus.Message {
	m := &azservicebus.Message{Body: []byte(id), MessageID: &id}
	if session != "" {
		m.SessionID, m.PartitionKey = &session, &session
	}
	return m
}

// send sends messages "session/id", or "id" without a session, in one batch.
func (w *world) send(entity string, ms ...*azservicebus.Message) {
	w.t.Helper()
	require.NoError(w.t, sendBatch(w.t.Context(), w.sender(entity), ms...))
}

func sendBatch(ctx context.Context, s *azservicebus.Sender, ms ...*azservicebus.Message) error {
	defer func() { _ = s.Close(ctx) }() // what counts is the send
	b, err := s.NewMessageBatch(ctx, nil)
	if err != nil {
		return err
	}
	for _, m := range ms {
		if err := b.AddMessage(m, nil); err != nil {
			return err
		}
	}
	return s.SendMessageBatch(ctx, b, nil)
}

// numbered makes n messages of one session with ids session-1 to session-n.
func numbered(session string, n int) []*azservicebus.Message {
	ms := make([]*azservicebus.Message, n)
	for i := range ms {
		ms[i] = message(session, fmt.Sprintf("%s-%d", session, i+1))
	}
	return ms
}

func (w *world) acceptNext() *azservicebus.SessionReceiver {
	w.t.Helper()
	r, err := w.client.AcceptNextSessionForSubscription(w.t.Context(), topic, subscription, nil)
	require.NoError(w.t, err)
	return r
}

func (w *world) accept(id string) *azservicebus.SessionReceiver {
	w.t.Helper()
	r, err := w.client.AcceptSessionForSubscription(w.t.Context(), topic, subscription, id, nil)
	require.NoError(w.t, err)
	return r
}

type receiver interface {
	ReceiveMessages(context.Context, int, *azservicebus.ReceiveMessagesOptions) ([]*azservicebus.ReceivedMessage, error)
	CompleteMessage(context.Context, *azservicebus.ReceivedMessage, *azservicebus.CompleteMessageOptions) error
	Close(context.Context) error
}

// receive receives exactly n messages, in as many calls as it takes.
func (w *world) receive(r receiver, n int) []*azservicebus.ReceivedMessage {
	w.t.Helper()
	var out []*azservicebus.ReceivedMessage
	for len(out) < n {
		ms, err := r.ReceiveMessages(w.t.Context(), n-len(out), nil)
		require.NoError(w.t, err)
		out = append(out, ms...)
	}
	return out
}

// nothing asserts that no message comes within a second.
func (w *world) nothing(r receiver) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Second)
	defer cancel()
	ms, err := r.ReceiveMessages(ctx, 1, nil)
	require.ErrorIs(w.t, err, context.DeadlineExceeded)
	require.Empty(w.t, ms)
}

func (w *world) complete(r receiver, ms ...*azservicebus.ReceivedMessage) {
	w.t.Helper()
	for _, m := range ms {
		require.NoError(w.t, r.CompleteMessage(w.t.Context(), m, nil))
	}
}

func (w *world) close(r receiver) {
	w.t.Helper()
	require.NoError(w.t, r.Close(w.t.Context()))
}

func ids(ms []*azservicebus.ReceivedMessage) []string {
	out := make([]string, len(ms))
	for i, m := range ms {
		out[i] = m.MessageID
	}
	return out
}

func counts(ms []*azservicebus.ReceivedMessage) []uint32 {
	out := make([]uint32, len(ms))
	for i, m := range ms {
		out[i] = m.DeliveryCount
	}
	return out
}
