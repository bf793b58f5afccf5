package projector_test

import (
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// newer returns a message of a session in an encoding that only a newer version knows.
func newer(session string) *azservicebus.Message {
	return &azservicebus.Message{
		MessageID: new("newer"), SessionID: &session, ContentType: new("application/vnd.sluice.newer"), Body: []byte("[]"),
	}
}

// G1, G6: a message that a newer version encoded is neither dead-lettered nor overtaken: what came
// before it is applied, its session waits, no delivery count rises, and other sessions go on.
func TestG1G6ProjectorLeavesAnUnknownEncoding(t *testing.T) {
	inVirtualTime(t, func(w *world.World) {
		send(w, encode(w, event("a", 1, "T")), newer("a"), encode(w, event("a", 2, "T")))
		p := w.StartProjector(nil)
		w.Completed(1)
		w.Pass(10 * time.Minute)
		publish(w, event("b", 1, "T"))
		w.Completed(2)
		counted := p.MustEnd()
		require.Equal(w, 0, counted.DeadLettered)
		require.Equal(w, 0, counted.Redelivered)
		require.Equal(w, int64(1), w.TimelineOf("a").Events)
		require.Equal(w, int64(1), w.TimelineOf("b").Events)
		require.Contains(w, p.Log.Text(), "application/vnd.sluice.newer")

		session, err := w.BusClient.AcceptSessionForSubscription(w.Context(), world.Topic, world.Subscription, "a", nil)
		require.NoError(w, err)
		var left []string
		for len(left) < 2 {
			messages, err := session.ReceiveMessages(w.Context(), 2, nil)
			require.NoError(w, err)
			for _, m := range messages {
				left = append(left, *m.ContentType)
			}
		}
		require.Equal(w, []string{"application/vnd.sluice.newer", "application/json"}, left)
		require.NoError(w, session.Close(w.Context()))
	})
}

// G2, G6: nor is it overtaken in a session of which an event waits for a version meanwhile.
func TestG2G6AnUnknownEncodingIsLeftBehindAnEventThatWaits(t *testing.T) {
	inVirtualTime(t, func(w *world.World) {
		shared := func(m *azservicebus.Message) *azservicebus.Message {
			m.SessionID, m.PartitionKey = new("shared"), new("shared")
			return m
		}
		w.StartProjector(nil)
		send(w, shared(encode(w, event("x", 1, "T"))), shared(encode(w, event("x", 3, "T"))))
		w.Completed(1)
		send(w, newer("shared"), shared(encode(w, versionless("y", 1))))
		w.Pass(time.Second)
		send(w, shared(encode(w, versionless("y", 2))))
		w.Pass(10 * time.Second)
		require.Equal(w, 1, w.Bus.Stats(world.SubscriptionPath).Completed)
	})
}

// G1: while the dead-letter queue holds a message that this version cannot read, an aggregate is
// not unparked: the message may hold events of it.
func TestG1ReplayRefusesAnUnknownEncoding(t *testing.T) {
	inVirtualTime(t, func(w *world.World) {
		garbage := encode(w, event("a", 1, "T"))
		garbage.Body = []byte("garbage")
		p := w.StartProjector(nil)
		send(w, garbage)
		deadLettered(w, 1)
		p.MustEnd()

		send(w, newer("z"))
		deadLetterFirst(w, "z", "")

		for _, command := range [][]string{{"parked", "replay", "a"}, {"parked", "drop", "a", "--yes"}, {"parked", "replay", "--all"}} {
			refused := w.OperateProjector(nil, command...)
			require.NotEqual(w, 0, refused.Code)
			require.Contains(w, refused.Err+refused.Out, "a message that this version cannot read")
		}
		require.Equal(w, 2, w.Bus.Stats(world.SubscriptionPath).DeadLettered)
	})
}
