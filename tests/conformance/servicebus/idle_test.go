package servicebus_test

import (
	"testing"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
)

// TestIdleLinksAreDetached after ten minutes without use; the SDK opens them again.
func TestIdleLinksAreDetached(t *testing.T) {
	inBubble(t, standard(), servicebus.Options{}, func(t *testing.T, w *world) {
		x := newCBS(t, w)
		require.EqualValues(t, 202, x.put("jwt", "amqp://emulator/"+queue, "a.b.c", time.Now().Add(24*time.Hour)))
		sender, err := x.session.NewSender(t.Context(), queue, nil)
		require.NoError(t, err)
		idle, err := x.session.NewReceiver(t.Context(), queue, &amqp.ReceiverOptions{Credit: -1})
		require.NoError(t, err)
		// What waits is in use, for as long as it waits.
		waiting, err := x.session.NewReceiver(t.Context(), queue, &amqp.ReceiverOptions{Credit: 1})
		require.NoError(t, err)
		for range 3 { // what is used now and then stays
			time.Sleep(9 * time.Minute)
			require.NoError(t, sender.Send(t.Context(), amqp.NewMessage([]byte("x")), nil))
			m, err := waiting.Receive(t.Context(), nil)
			require.NoError(t, err)
			require.NoError(t, waiting.AcceptMessage(t.Context(), m))
		}
		_, err = idle.Receive(t.Context(), nil)
		require.ErrorContains(t, err, "errors occurred in consumer. Idle timeout")

		time.Sleep(time.Hour)
		err = sender.Send(t.Context(), amqp.NewMessage([]byte("y")), nil)
		require.Equal(t, "amqp:link:detach-forced", condition(t, err))
		require.ErrorContains(t, err, "errors occurred in publisher. Idle timeout")
		again, err := x.session.NewSender(t.Context(), queue, nil)
		require.NoError(t, err)
		require.NoError(t, again.Send(t.Context(), amqp.NewMessage([]byte("z")), nil))
		m, err := waiting.Receive(t.Context(), nil)
		require.NoError(t, err)
		require.Equal(t, "z", string(m.GetData()))
	})
}

func TestTheSDKOutlivesIdleLinks(t *testing.T) {
	inBubble(t, standard(), servicebus.Options{}, func(t *testing.T, w *world) {
		s := w.sender(topic)
		for _, id := range []string{"1", "2", "3"} {
			require.NoError(t, s.SendMessage(t.Context(), message("a", id), nil))
			time.Sleep(time.Hour)
		}
		require.Equal(t, 3, w.server.Stats(topic).Accepted)
	})
}

// TestConnectionsWithoutLinksAreClosed a minute after they were opened, or five after their last link.
func TestConnectionsWithoutLinksAreClosed(t *testing.T) {
	inBubble(t, standard(), servicebus.Options{}, func(t *testing.T, w *world) {
		open := func() *amqp.Conn {
			c, err := w.dial(t.Context())
			require.NoError(t, err)
			client, err := amqp.NewConn(t.Context(), c, &amqp.ConnOptions{SASLType: amqp.SASLTypeAnonymous()})
			require.NoError(t, err)
			return client
		}
		closedAfter := func(client *amqp.Conn) time.Duration {
			start := time.Now()
			<-client.Done()
			var connection *amqp.ConnError
			require.ErrorAs(t, client.Err(), &connection)
			require.Equal(t, amqp.ErrCondConnectionForced, connection.RemoteErr.Condition)
			require.Contains(t, connection.RemoteErr.Description, "inactive for more than")
			return time.Since(start)
		}
		require.Equal(t, time.Minute, closedAfter(open()))

		client := open()
		session, err := client.NewSession(t.Context(), nil)
		require.NoError(t, err)
		link, err := session.NewSender(t.Context(), "$cbs", nil)
		require.NoError(t, err)
		time.Sleep(time.Hour) // a link keeps it
		require.NoError(t, link.Close(t.Context()))
		require.Equal(t, 5*time.Minute, closedAfter(client))
	})
}
