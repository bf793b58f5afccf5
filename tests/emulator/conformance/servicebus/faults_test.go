package servicebus_test

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/virtualtime"
	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
)

func TestBusyServerIsRetried(t *testing.T) {
	inBubble(t, standard(), servicebus.Options{}, func(t *testing.T, w *world) {
		require.NoError(t, w.server.RefuseSends(topic, 2))
		start := time.Now()
		w.send(topic, message("a", "1"))
		require.Greater(t, time.Since(start), 2*time.Second, "the client backed off")
		require.Equal(t, 1, w.server.Stats(topic).Accepted)
		require.Error(t, w.server.RefuseSends("nothing", 1))
	})
}

func TestLostAcknowledgementIsSentAgainAndDropped(t *testing.T) {
	inBubble(t, standard(), servicebus.Options{}, func(t *testing.T, w *world) {
		w.server.LoseAcknowledgements(1)
		w.send(topic, message("a", "1"), message("a", "2"))
		s := w.server.Stats(topic)
		require.Equal(t, 2, s.Accepted)
		require.Equal(t, 2, s.Duplicates)
		require.Equal(t, []string{"1", "2"}, ids(w.receive(w.accept("a"), 2)))
	})
}

func TestClientsRecoverFromDroppedConnections(t *testing.T) {
	s, c := onTCP(t, standard(), servicebus.Options{})
	snd, err := c.NewSender(topic, nil)
	require.NoError(t, err)
	require.NoError(t, snd.SendMessage(t.Context(), message("a", "1"), nil))
	r, err := c.AcceptSessionForSubscription(t.Context(), topic, subscription, "a", nil)
	require.NoError(t, err)
	ms, err := r.ReceiveMessages(t.Context(), 1, nil)
	require.NoError(t, err)
	s.DropConnections()
	require.NoError(t, snd.SendMessage(t.Context(), message("a", "2"), nil))
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	require.Error(t, r.CompleteMessage(ctx, ms[0], nil), "the lock went with the connection")
	var got []*azservicebus.ReceivedMessage
	for len(got) < 2 {
		more, err := r.ReceiveMessages(t.Context(), 2, nil)
		require.NoError(t, err)
		got = append(got, more...)
	}
	require.Equal(t, []string{"1", "2"}, ids(got))
	require.Equal(t, []uint32{1, 1}, counts(got))
	for _, m := range got {
		require.NoError(t, r.CompleteMessage(t.Context(), m, nil))
	}
}

func TestRunClosesEverything(t *testing.T) {
	s, err := servicebus.New(standard(), servicebus.Options{})
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.Run(ctx, l); err != nil {
			t.Errorf("run: %v", err)
		}
	})
	silent, err := net.Dial("tcp", l.Addr().String()) // never sends anything
	require.NoError(t, err)
	c, err := azservicebus.NewClientFromConnectionString(servicebus.ConnectionString(l.Addr().String()), nil)
	require.NoError(t, err)
	r, err := c.AcceptSessionForSubscription(t.Context(), topic, subscription, "a", nil)
	require.NoError(t, err)
	cancel()
	wg.Wait()
	_, err = silent.Read(make([]byte, 1))
	require.Error(t, err)
	require.NoError(t, silent.Close())
	_, err = net.Dial("tcp", l.Addr().String())
	require.Error(t, err)
	require.Zero(t, s.Stats(subPath).HeldSessions, "a connection's sessions are free once it is gone")
	short, stop := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer stop()
	_ = r.Close(short)
	_ = c.Close(short)
}

func TestRefusals(t *testing.T) {
	inBubble(t, standard(), servicebus.Options{}, func(t *testing.T, w *world) {
		send := func(entity string) error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			return w.sender(entity).SendMessage(ctx, message("a", "1"), nil)
		}
		require.Equal(t, azservicebus.CodeNotFound, code(t, send("nothing")))
		require.Equal(t, "amqp:not-allowed", condition(t, send(subPath)))

		receive := func(q string) error {
			_, err := w.queueReceiver(q, nil).ReceiveMessages(t.Context(), 1, nil)
			return err
		}
		require.Equal(t, "amqp:not-allowed", condition(t, receive(sessionQueue)))
		require.Equal(t, "amqp:not-allowed", condition(t, receive(topic)))
		_, err := w.client.AcceptSessionForQueue(t.Context(), queue, "a", nil)
		require.Equal(t, "amqp:not-allowed", condition(t, err))
		require.Equal(t, azservicebus.CodeNotFound, code(t, receive("nothing/$Transfer/$DeadLetterQueue")))
	})
}

func TestWrongKeyIsUnauthorized(t *testing.T) {
	s, err := servicebus.New(standard(), servicebus.Options{})
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.Run(ctx, l) })
	defer wg.Wait()
	defer cancel()
	bad := strings.Replace(servicebus.ConnectionString(l.Addr().String()), "SAS_KEY_VALUE", "guess", 1)
	wrong, err := azservicebus.NewClientFromConnectionString(bad, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, wrong.Close(t.Context())) }()
	snd, err := wrong.NewSender(topic, nil)
	require.NoError(t, err)
	err = snd.SendMessage(t.Context(), message("a", "1"), nil)
	require.Equal(t, azservicebus.CodeUnauthorizedAccess, code(t, err))
}

func TestLinkNeedsAClaim(t *testing.T) {
	inBubble(t, standard(), servicebus.Options{}, func(t *testing.T, w *world) {
		c, err := w.dial(t.Context())
		require.NoError(t, err)
		client, err := amqp.NewConn(t.Context(), c, &amqp.ConnOptions{SASLType: amqp.SASLTypeAnonymous()})
		require.NoError(t, err)
		defer func() { require.NoError(t, client.Close()) }()
		session, err := client.NewSession(t.Context(), nil)
		require.NoError(t, err)
		_, err = session.NewSender(t.Context(), topic, nil)
		require.Equal(t, "amqp:unauthorized-access", condition(t, err))
		_, err = session.NewReceiver(t.Context(), subPath, nil)
		require.Equal(t, "amqp:unauthorized-access", condition(t, err))
	})
}

func TestUnsupportedRequestsAreNamed(t *testing.T) {
	inBubble(t, standard(), servicebus.Options{}, func(t *testing.T, w *world) {
		c, err := w.dial(t.Context())
		require.NoError(t, err)
		client, err := amqp.NewConn(t.Context(), c, &amqp.ConnOptions{SASLType: amqp.SASLTypeAnonymous()})
		require.NoError(t, err)
		defer func() { require.NoError(t, client.Close()) }()
		session, err := client.NewSession(t.Context(), nil)
		require.NoError(t, err)
		requests, err := session.NewSender(t.Context(), "$cbs", nil)
		require.NoError(t, err)
		replies, err := session.NewReceiver(t.Context(), "$cbs", &amqp.ReceiverOptions{TargetAddress: "me"})
		require.NoError(t, err)
		me := "me"
		require.NoError(t, requests.Send(t.Context(), &amqp.Message{
			Properties:            &amqp.MessageProperties{MessageID: "1", ReplyTo: &me},
			ApplicationProperties: map[string]any{"operation": "drop-everything"}, Value: "x",
		}, nil))
		m, err := replies.Receive(t.Context(), nil)
		require.NoError(t, err)
		require.Equal(t, "1", m.Properties.CorrelationID)
		require.Equal(t, int32(501), m.ApplicationProperties["status-code"])
		require.Contains(t, m.ApplicationProperties["status-description"], "drop-everything")
	})
}

type identity struct{ asked chan []string }

func (i identity) GetToken(_ context.Context, o policy.TokenRequestOptions) (azcore.AccessToken, error) {
	i.asked <- o.Scopes
	return azcore.AccessToken{Token: "header.claims.signature", ExpiresOn: time.Now().Add(time.Hour)}, nil
}

func TestTokenCredentialWorksWithoutAConnectionString(t *testing.T) {
	inBubble(t, standard(), servicebus.Options{}, func(t *testing.T, w *world) {
		cred := identity{asked: make(chan []string, 100)}
		c, err := azservicebus.NewClient("namespace.servicebus.windows.net", cred, &azservicebus.ClientOptions{
			NewWebSocketConn: func(ctx context.Context, _ azservicebus.NewWebSocketConnArgs) (net.Conn, error) { return w.dial(ctx) },
		})
		require.NoError(t, err)
		defer func() { require.NoError(t, c.Close(t.Context())) }()
		w.client = c
		w.send(topic, message("a", "1"))
		require.Equal(t, []string{"1"}, ids(w.receive(w.acceptNext(), 1)))
		require.Equal(t, []string{"https://servicebus.azure.net//.default"}, <-cred.asked)
	})
}

// A connection beyond the limit is refused with an error, and accepted after another one is closed.
func TestANamespaceTakesSoManyConnections(t *testing.T) {
	inBubble(t, standard(), servicebus.Options{MaxConnections: 2}, func(t *testing.T, w *world) {
		open := func() (*amqp.Conn, error) {
			c, err := w.dial(t.Context())
			require.NoError(t, err)
			conn, err := amqp.NewConn(t.Context(), c, &amqp.ConnOptions{SASLType: amqp.SASLTypeAnonymous()})
			if err != nil {
				return nil, err
			}
			t.Cleanup(func() { _ = conn.Close() })
			_, err = conn.NewSession(t.Context(), nil)
			return conn, err
		}
		first, err := open()
		require.NoError(t, err)
		_, err = open()
		require.NoError(t, err)
		_, err = open()
		var closed *amqp.ConnError
		require.ErrorAs(t, err, &closed)
		require.Equal(t, amqp.ErrCondResourceLimitExceeded, closed.RemoteErr.Condition)
		require.Equal(t, 1, w.server.Refused())
		require.NoError(t, first.Close())
		virtualtime.Wait()
		_, err = open()
		require.NoError(t, err)
	})
}
