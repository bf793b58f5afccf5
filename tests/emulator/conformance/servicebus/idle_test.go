package servicebus_test

import (
	"context"
	"testing"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
)

// A link is detached after ten minutes without use; the SDK opens it again.
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

// A connection without links is closed one minute after it was opened, and five minutes after its
// last link has ended.
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

		// Links to $cbs and $management keep it no longer.
		x := newCBS(t, w)
		require.EqualValues(t, 202, x.put("jwt", "amqp://emulator/"+queue, "a.b.c", time.Now().Add(24*time.Hour)))
		_, err := x.session.NewSender(t.Context(), queue+"/$management", nil)
		require.NoError(t, err)
		require.Equal(t, time.Minute, closedAfter(x.conn))

		x = newCBS(t, w)
		require.EqualValues(t, 202, x.put("jwt", "amqp://emulator/"+queue, "a.b.c", time.Now().Add(24*time.Hour)))
		link, err := x.session.NewReceiver(t.Context(), queue, &amqp.ReceiverOptions{Credit: 1})
		require.NoError(t, err)
		time.Sleep(time.Hour) // a link keeps it
		require.NoError(t, link.Close(t.Context()))
		require.Equal(t, 5*time.Minute, closedAfter(x.conn))
	})
}

// A link that waits for a session keeps its connection open, or does not, as configured: what the
// service does is not known.
func TestALinkThatWaitsForASessionKeepsItsConnection(t *testing.T) {
	for _, idle := range []bool{false, true} {
		inBubble(t, standard(), servicebus.Options{IdleAccepts: idle}, func(t *testing.T, w *world) {
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			defer cancel()
			x := newCBS(t, w)
			require.EqualValues(t, 202, x.put("jwt", "amqp://emulator/"+sessionQueue, "a.b.c", time.Now().Add(24*time.Hour)))
			_, err := x.session.NewReceiver(ctx, sessionQueue, &amqp.ReceiverOptions{
				Filters:    []amqp.LinkFilter{amqp.NewLinkFilter("com.microsoft:session-filter", 0x137000000C, nil)},
				Properties: map[string]any{"com.microsoft:timeout": uint32(120_000)},
			})
			if idle {
				var ended *amqp.ConnError
				require.ErrorAs(t, err, &ended)
				return
			}
			require.Equal(t, "com.microsoft:timeout", condition(t, err))
		})
	}
}

// Links to $cbs and $management are detached, too, unless they are used.
func TestIdleRequestLinksAreDetached(t *testing.T) {
	inBubble(t, standard(), servicebus.Options{}, func(t *testing.T, w *world) {
		n := managing(t, w, queue)
		_, err := n.session.NewReceiver(t.Context(), queue, &amqp.ReceiverOptions{Credit: 1}) // keeps the connection
		require.NoError(t, err)
		for range 3 {
			time.Sleep(9 * time.Minute)
			status, _, _ := n.manage("peek-message", map[string]any{"from-sequence-number": int64(0), "message-count": int32(1)})
			require.EqualValues(t, 204, status)
		}
		_, err = n.replies.Receive(t.Context(), nil)
		require.Equal(t, "amqp:link:detach-forced", condition(t, err))
		require.ErrorContains(t, err, "AmqpControlProtocolClient")
		require.Error(t, n.requests.Send(t.Context(), amqp.NewMessage([]byte("x")), nil))
	})
}
