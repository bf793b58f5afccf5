package servicebus_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
)

func TestExpireLocksGivesMessagesAndSessionsBack(t *testing.T) {
	inBubble(t, standard(), servicebus.Options{}, func(t *testing.T, w *world) {
		require.NoError(t, w.sender(sessionQueue).SendMessage(t.Context(), message("s", "1"), nil))
		require.NoError(t, w.sender(queue).SendMessage(t.Context(), message("", "2"), nil))
		r, err := w.client.AcceptSessionForQueue(t.Context(), sessionQueue, "s", nil)
		require.NoError(t, err)
		got, err := r.ReceiveMessages(t.Context(), 1, nil)
		require.NoError(t, err)
		require.Equal(t, 1, w.server.ExpireLocks(sessionQueue))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.Error(t, r.CompleteMessage(ctx, got[0], nil))

		plain := w.queueReceiver(queue, nil)
		got, err = plain.ReceiveMessages(t.Context(), 1, nil)
		require.NoError(t, err)
		require.Equal(t, 1, w.server.ExpireLocks(queue))
		require.Equal(t, azservicebus.CodeLockLost, code(t, plain.CompleteMessage(t.Context(), got[0], nil)))
		got, err = plain.ReceiveMessages(t.Context(), 1, nil)
		require.NoError(t, err)
		require.EqualValues(t, 2, got[0].DeliveryCount)
		require.Zero(t, w.server.ExpireLocks("nothing"))
	})
}

// A message that is taken out is dead-lettered before a receiver can receive it; the messages after
// it are not.
func TestMessagesAreTakenOut(t *testing.T) {
	inBubble(t, standard(), servicebus.Options{}, func(t *testing.T, w *world) {
		end, err := w.server.TakeOut(sessionQueue, func(a servicebus.Accepted) string {
			if a.MessageID == "2" {
				return servicebus.UsedUp
			}
			return ""
		})
		require.NoError(t, err)
		s := w.sender(sessionQueue)
		for _, id := range []string{"1", "2", "3"} {
			require.NoError(t, s.SendMessage(t.Context(), message("s", id), nil))
		}
		require.Equal(t, 2, w.server.Stats(sessionQueue).Active)
		r, err := w.client.AcceptSessionForQueue(t.Context(), sessionQueue, "s", nil)
		require.NoError(t, err)
		got, err := r.ReceiveMessages(t.Context(), 3, nil)
		require.NoError(t, err)
		require.Equal(t, []string{"1", "3"}, []string{got[0].MessageID, got[1].MessageID})
		require.Positive(t, w.server.Stats(sessionQueue).MostInHand)
		dead := w.server.PeekDeadLetters(sessionQueue, 10)
		require.Len(t, dead, 1)
		require.Equal(t, []string{"2", "MaxDeliveryCountExceeded"}, []string{dead[0].MessageID, dead[0].Reason})
		end()
		require.NoError(t, s.SendMessage(t.Context(), message("s", "2"), nil))
		require.Equal(t, 3, w.server.Stats(sessionQueue).Active)
		_, err = w.server.TakeOut("nothing", nil)
		require.Error(t, err)
	})
}

func TestDetachedSenderRecovers(t *testing.T) {
	inBubble(t, standard(), servicebus.Options{}, func(t *testing.T, w *world) {
		s := w.sender(queue)
		require.NoError(t, s.SendMessage(t.Context(), message("", "1"), nil))
		require.Positive(t, w.server.DetachLinks(queue))
		require.NoError(t, s.SendMessage(t.Context(), message("", "2"), nil))
		require.Equal(t, 2, w.server.Stats(queue).Accepted)
	})
}

// TestFaultsRepeatWithTheirSeed checks that the seed alone determines which sends fail.
func TestFaultsRepeatWithTheirSeed(t *testing.T) {
	outcome := func(seed uint64) string {
		var out strings.Builder
		inBubble(t, standard(), servicebus.Options{}, func(t *testing.T, w *world) {
			c := w.connect(&azservicebus.ClientOptions{RetryOptions: azservicebus.RetryOptions{MaxRetries: -1}})
			s, err := c.NewSender(queue, nil)
			require.NoError(t, err)
			end := w.server.Inject(servicebus.Faults{Seed: seed, Send: servicebus.Fault{Busy: 0.5, Delay: 20 * time.Millisecond}})
			for range 24 {
				start := time.Now()
				if err := s.SendMessage(t.Context(), message("", "x"), nil); err != nil {
					require.Equal(t, "com.microsoft:server-busy", condition(t, err))
					out.WriteString("b")
				} else {
					out.WriteString(".")
				}
				require.GreaterOrEqual(t, time.Since(start), 20*time.Millisecond)
			}
			end()
			require.NoError(t, s.SendMessage(t.Context(), message("", "x"), nil))
		})
		return out.String()
	}
	first := outcome(1)
	require.Contains(t, first, "b")
	require.Contains(t, first, ".")
	require.Equal(t, first, outcome(1))
	require.NotEqual(t, first, outcome(2))
}

// shortLived hands out tokens that are valid for a while, and then none.
type shortLived struct{ until time.Time }

func (s shortLived) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	if !time.Now().Before(s.until) {
		return azcore.AccessToken{}, errors.New("no more tokens")
	}
	return azcore.AccessToken{Token: "local", ExpiresOn: s.until}, nil
}

func TestExpiredClaimClosesLinks(t *testing.T) {
	inBubble(t, standard(), servicebus.Options{}, func(t *testing.T, w *world) {
		o := &azservicebus.ClientOptions{}
		w.connect(o) // sets the transport
		c, err := azservicebus.NewClient("emulator:5672", shortLived{time.Now().Add(10 * time.Minute)}, o)
		require.NoError(t, err)
		defer func() { _ = c.Close(context.WithoutCancel(t.Context())) }()
		s, err := c.NewSender(queue, nil)
		require.NoError(t, err)
		require.NoError(t, s.SendMessage(t.Context(), message("", "1"), nil))
		time.Sleep(9 * time.Minute) // virtual: the claim is still good
		require.NoError(t, s.SendMessage(t.Context(), message("", "2"), nil))
		time.Sleep(2 * time.Minute)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		require.Error(t, s.SendMessage(ctx, message("", "3"), nil))
		require.Equal(t, 2, w.server.Stats(queue).Accepted, "a link outlived its claim")
	})
}
