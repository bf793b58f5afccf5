package servicebus_test

import (
	"context"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
)

// withoutRetries returns a client that reports what is refused.
func withoutRetries(w *world) *azservicebus.Client {
	return w.connect(&azservicebus.ClientOptions{RetryOptions: azservicebus.RetryOptions{MaxRetries: -1}})
}

// throttled checks that an operation was refused as the Standard tier does.
func throttled(t *testing.T, err error) {
	t.Helper()
	require.Equal(t, "com.microsoft:server-busy", condition(t, err))
	require.ErrorContains(t, err, "Error code : 50009. Please wait 2 seconds and try again.")
}

// For a topic with one subscription, the Standard tier charges a message that is sent and its
// filter, a session, each message that is received, and each that is peeked.
func TestOperationsCostWhatTheStandardTierCharges(t *testing.T) {
	inBubble(t, standard(), servicebus.Options{Credits: 1000}, func(t *testing.T, w *world) {
		spent := func(does func()) int {
			before := w.server.CreditsSpent()
			does()
			return w.server.CreditsSpent() - before
		}
		sender, receiver := w.sender(topic), (*azservicebus.SessionReceiver)(nil)
		require.Equal(t, 14, spent(func() { require.NoError(t, sendBatchOn(t.Context(), sender, numbered("a", 7))) }), "seven messages, seven filters")
		require.Equal(t, 7, spent(func() { require.NoError(t, sendBatchOn(t.Context(), w.sender(sessionQueue), numbered("a", 7))) }), "a queue has no filter")
		require.Equal(t, 1, spent(func() { receiver = w.acceptNext() }))
		require.Equal(t, 7, spent(func() {
			messages, err := receiver.PeekMessages(t.Context(), 10, nil)
			require.NoError(t, err)
			require.Len(t, messages, 7)
		}))
		var messages []*azservicebus.ReceivedMessage
		require.Equal(t, 7, spent(func() { messages = w.receive(receiver, 7) }))
		require.Zero(t, spent(func() { w.complete(receiver, messages...) }))
		require.Equal(t, 1, spent(func() { require.NoError(t, receiver.RenewSessionLock(t.Context(), nil)) }))

		require.NoError(t, w.server.AddSubscription(topic, servicebus.Subscription{Name: "second"}))
		require.Equal(t, 3, spent(func() { require.NoError(t, sender.SendMessage(t.Context(), message("b", "1"), nil)) }))
	})
}

// TestCreditsAreSpentOnceASecond, by senders and receivers together; the operation that exceeds
// them is let through, and the following seconds pay for it.
func TestCreditsAreSpentOnceASecond(t *testing.T) {
	inBubble(t, standard(), servicebus.Options{Credits: 10}, func(t *testing.T, w *world) {
		c := withoutRetries(w)
		s, err := c.NewSender(topic, nil)
		require.NoError(t, err)
		require.NoError(t, sendBatchOn(t.Context(), s, numbered("a", 5)))
		throttled(t, s.SendMessage(t.Context(), message("b", "b"), nil))
		_, err = c.AcceptSessionForSubscription(t.Context(), topic, subscription, "a", nil)
		require.Equal(t, "com.microsoft:server-busy", condition(t, err))

		time.Sleep(time.Second)
		r, err := c.AcceptSessionForSubscription(t.Context(), topic, subscription, "a", nil)
		require.NoError(t, err)
		require.NoError(t, sendBatchOn(t.Context(), s, numbered("c", 12)), "24 credits, and 9 are there")
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		messages, err := r.ReceiveMessages(ctx, 5, nil)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Empty(t, messages)
		require.Equal(t, 10+1+24, w.server.CreditsSpent(), "what is refused costs nothing")

		time.Sleep(time.Second)
		throttled(t, s.SendMessage(t.Context(), message("d", "d"), nil))
		began := time.Now()
		messages, err = r.ReceiveMessages(t.Context(), 5, nil)
		require.NoError(t, err)
		require.Len(t, messages, 5)
		require.InDelta(t, time.Second, time.Since(began), float64(100*time.Millisecond), "the debt of 15 is paid after another second")
		throttled(t, s.SendMessage(t.Context(), message("d", "d"), nil))
		time.Sleep(10 * time.Second)
		require.NoError(t, sendBatchOn(t.Context(), s, numbered("e", 5)))
		throttled(t, s.SendMessage(t.Context(), message("f", "f"), nil))
	})
}
