package servicebus_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
)

func (w *world) queueReceiver(name string, o *azservicebus.ReceiverOptions) *azservicebus.Receiver {
	w.t.Helper()
	r, err := w.client.NewReceiverForQueue(name, o)
	require.NoError(w.t, err)
	return r
}

func (w *world) deadLetters() *azservicebus.Receiver {
	w.t.Helper()
	r, err := w.client.NewReceiverForSubscription(topic, subscription, &azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueDeadLetter})
	require.NoError(w.t, err)
	return r
}

func code(t *testing.T, err error) azservicebus.Code {
	t.Helper()
	e, ok := errors.AsType[*azservicebus.Error](err)
	require.True(t, ok, "no service bus error in %v", err)
	return e.Code
}

func TestAbandonedMessageComesBackFirstAndCounts(t *testing.T) {
	inBubble(t, standard(), servicebus.Options{}, func(t *testing.T, w *world) {
		w.send(topic, numbered("a", 4)...)
		r := w.accept("a")
		ms := w.receive(r, 2)
		require.NoError(t, r.AbandonMessage(t.Context(), ms[0], &azservicebus.AbandonMessageOptions{
			PropertiesToModify: map[string]any{"why": "not yet"},
		}))
		require.NoError(t, r.AbandonMessage(t.Context(), ms[1], nil))
		ms = w.receive(r, 4)
		require.Equal(t, []string{"a-1", "a-2", "a-3", "a-4"}, ids(ms))
		require.Equal(t, []uint32{2, 2, 1, 1}, counts(ms))
		require.Equal(t, "not yet", ms[0].ApplicationProperties["why"])
		w.complete(r, ms...)
	})
}

func TestTooManyDeliveriesDeadLetter(t *testing.T) {
	inBubble(t, standard(), servicebus.Options{}, func(t *testing.T, w *world) {
		w.send(topic, numbered("a", 2)...)
		r := w.accept("a")
		for n := range uint32(3) {
			m := w.receive(r, 1)[0]
			require.Equal(t, "a-1", m.MessageID)
			require.Equal(t, n+1, m.DeliveryCount)
			require.NoError(t, r.AbandonMessage(t.Context(), m, nil))
		}
		require.Equal(t, []string{"a-2"}, ids(w.receive(r, 1)))
		dead := w.server.PeekDeadLetters(subPath, 10)
		require.Len(t, dead, 1)
		require.Equal(t, servicebus.Message{
			SequenceNumber: 1, EnqueuedSequenceNumber: 1, MessageID: "a-1", SessionID: "a", Reason: "MaxDeliveryCountExceeded",
			Description: "Message could not be consumed after 3 delivery attempts.", Encoded: dead[0].Encoded,
		}, dead[0])
	})
}

func TestDeadLetteredMessagesAreReadInOrderWithAnOrdinaryReceiver(t *testing.T) {
	inBubble(t, standard(), servicebus.Options{}, func(t *testing.T, w *world) {
		ms := numbered("a", 3)
		ms[0].ApplicationProperties = map[string]any{"epoch": int64(7)}
		w.send(topic, ms...)
		r := w.accept("a")
		for _, m := range w.receive(r, 3) {
			require.NoError(t, r.DeadLetterMessage(t.Context(), m, &azservicebus.DeadLetterOptions{
				Reason: new("poison"), ErrorDescription: new("about " + m.MessageID),
			}))
		}
		require.Equal(t, 3, w.server.Stats(subPath).DeadLettered)
		require.Zero(t, w.server.Stats(subPath).Active)

		dlq := w.deadLetters()
		got := w.receive(dlq, 3)
		require.Equal(t, []string{"a-1", "a-2", "a-3"}, ids(got))
		first := got[0]
		require.Equal(t, "poison", *first.DeadLetterReason)
		require.Equal(t, "about a-1", *first.DeadLetterErrorDescription)
		require.Equal(t, subPath, *first.DeadLetterSource)
		require.Equal(t, "a", *first.SessionID)
		require.Equal(t, []byte("a-1"), first.Body)
		require.Equal(t, int64(7), first.ApplicationProperties["epoch"])
		w.complete(dlq, got...)
		require.Zero(t, w.server.Stats(subPath).DeadLettered)
		_, err := w.client.AcceptNextSessionForSubscription(t.Context(), topic, subscription+"/$DeadLetterQueue", nil)
		require.Equal(t, "amqp:not-allowed", condition(t, err))
	})
}

func TestMessageLockRunsOutAndRenews(t *testing.T) {
	inBubble(t, standard(), servicebus.Options{}, func(t *testing.T, w *world) {
		w.send(queue, message("", "1"), message("", "2"))
		r := w.queueReceiver(queue, nil)
		ms := w.receive(r, 2)
		time.Sleep(20 * time.Second)
		require.NoError(t, r.RenewMessageLock(t.Context(), ms[0], nil))
		require.WithinDuration(t, time.Now().Add(30*time.Second), *ms[0].LockedUntil, 0)
		time.Sleep(20 * time.Second)
		w.complete(r, ms[0])
		require.Equal(t, azservicebus.CodeLockLost, code(t, r.CompleteMessage(t.Context(), ms[1], nil)))
		require.Equal(t, azservicebus.CodeLockLost, code(t, r.RenewMessageLock(t.Context(), ms[1], nil)))
		back := w.receive(r, 1)
		require.Equal(t, []string{"2"}, ids(back))
		require.Equal(t, []uint32{2}, counts(back))
		w.complete(r, back...)
		require.Equal(t, 2, w.server.Stats(queue).Completed)
	})
}

func TestMessageLockSurvivesItsReceiver(t *testing.T) {
	inBubble(t, standard(), servicebus.Options{}, func(t *testing.T, w *world) {
		w.send(queue, message("", "1"))
		r := w.queueReceiver(queue, nil)
		w.receive(r, 1)
		w.close(r)
		r = w.queueReceiver(queue, nil)
		w.nothing(r)
		time.Sleep(30 * time.Second)
		require.Equal(t, []uint32{2}, counts(w.receive(r, 1)))
	})
}

func TestMessagesReleasedByTheClientKeepOrderAndCount(t *testing.T) {
	inBubble(t, standard(), servicebus.Options{}, func(t *testing.T, w *world) {
		r := w.accept("a")
		// Leaves unused credit behind: what arrives between calls is released by the SDK.
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := r.ReceiveMessages(ctx, 10, nil)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		w.send(topic, numbered("a", 5)...)
		time.Sleep(time.Second)
		ms := w.receive(r, 5)
		require.Equal(t, []string{"a-1", "a-2", "a-3", "a-4", "a-5"}, ids(ms))
		require.Equal(t, []uint32{1, 1, 1, 1, 1}, counts(ms))
		w.complete(r, ms...)
	})
}

func TestReceiveAndDelete(t *testing.T) {
	inBubble(t, standard(), servicebus.Options{}, func(t *testing.T, w *world) {
		w.send(queue, message("", "1"), message("", "2"))
		r := w.queueReceiver(queue, &azservicebus.ReceiverOptions{ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete})
		require.Equal(t, []string{"1", "2"}, ids(w.receive(r, 2)))
		require.Zero(t, w.server.Stats(queue).Active)
	})
}

func TestDeferredMessageIsReceivedByNumber(t *testing.T) {
	inBubble(t, standard(), servicebus.Options{}, func(t *testing.T, w *world) {
		w.send(topic, numbered("a", 2)...)
		r := w.accept("a")
		m := w.receive(r, 1)[0]
		require.NoError(t, r.DeferMessage(t.Context(), m, nil))
		next := w.receive(r, 1)
		require.Equal(t, []string{"a-2"}, ids(next))
		w.complete(r, next...)
		got, err := r.ReceiveDeferredMessages(t.Context(), []int64{*m.SequenceNumber}, nil)
		require.NoError(t, err)
		require.Equal(t, []string{"a-1"}, ids(got))
		require.Equal(t, azservicebus.MessageStateDeferred, got[0].State)
		w.complete(r, got...)
		require.Equal(t, 2, w.server.Stats(subPath).Completed)
		_, err = r.ReceiveDeferredMessages(t.Context(), []int64{*m.SequenceNumber}, nil)
		require.Equal(t, azservicebus.CodeNotFound, code(t, err))
	})
}

// Deferred messages can be settled in every way; the SDK settles them through $management.
func TestDeferredMessagesAreSettledEveryWay(t *testing.T) {
	inBubble(t, standard(), servicebus.Options{}, func(t *testing.T, w *world) {
		w.send(topic, numbered("a", 4)...)
		r := w.accept("a")
		var numbers []int64
		for _, m := range w.receive(r, 4) {
			require.NoError(t, r.DeferMessage(t.Context(), m, nil))
			numbers = append(numbers, *m.SequenceNumber)
		}
		got, err := r.ReceiveDeferredMessages(t.Context(), numbers, nil)
		require.NoError(t, err)
		w.complete(r, got[0])
		require.NoError(t, r.AbandonMessage(t.Context(), got[1], &azservicebus.AbandonMessageOptions{PropertiesToModify: map[string]any{"tried": true}}))
		require.NoError(t, r.DeferMessage(t.Context(), got[2], nil))
		require.NoError(t, r.DeadLetterMessage(t.Context(), got[3], &azservicebus.DeadLetterOptions{Reason: new("bad"), ErrorDescription: new("very")}))
		require.Error(t, r.CompleteMessage(within(t, time.Minute), got[0], nil), "its lock is gone")

		s := w.server.Stats(subPath)
		require.Equal(t, []int{2, 2, 1, 1}, []int{s.Active, s.Deferred, s.Completed, s.DeadLettered})
		again, err := r.ReceiveDeferredMessages(t.Context(), numbers[1:3], nil)
		require.NoError(t, err)
		require.Equal(t, []string{"a-2", "a-3"}, ids(again), "what was deferred stays deferred")
		require.Equal(t, []uint32{2, 1}, counts(again), "an abandoned one counts")
		require.Equal(t, map[string]any{"tried": true}, again[0].ApplicationProperties)
		dead := w.server.PeekDeadLetters(subPath, 9)
		require.Equal(t, "bad/very", dead[0].Reason+"/"+dead[0].Description)
		_, err = r.ReceiveDeferredMessages(t.Context(), numbers[:1], nil)
		require.Equal(t, azservicebus.CodeNotFound, code(t, err))
	})
}

func TestPeekShowsWithoutTaking(t *testing.T) {
	inBubble(t, standard(), servicebus.Options{}, func(t *testing.T, w *world) {
		w.send(topic, numbered("a", 2)...)
		w.send(topic, numbered("b", 2)...)
		r := w.accept("a")
		w.receive(r, 1)
		ms, err := r.PeekMessages(t.Context(), 10, nil)
		require.NoError(t, err)
		require.Equal(t, []string{"a-1", "a-2"}, ids(ms))
		ms, err = r.PeekMessages(t.Context(), 10, nil)
		require.NoError(t, err)
		require.Empty(t, ms)
		dead, err := w.deadLetters().PeekMessages(t.Context(), 10, nil)
		require.NoError(t, err)
		require.Empty(t, dead)
	})
}
