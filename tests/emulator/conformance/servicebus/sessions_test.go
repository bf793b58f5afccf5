package servicebus_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/virtualtime"
	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
)

func condition(t *testing.T, err error) string {
	t.Helper()
	e, ok := errors.AsType[*amqp.Error](err)
	require.True(t, ok, "no AMQP error in %v", err)
	return string(e.Condition)
}

func TestSessionsAreGrantedInTheOrderTheyBecameReady(t *testing.T) {
	inBubble(t, standard(), servicebus.Options{}, func(t *testing.T, w *world) {
		w.send(topic, message("c", "1"), message("a", "2"), message("c", "3"), message("b", "4"))
		var got []string
		for range 3 {
			got = append(got, w.acceptNext().SessionID())
		}
		require.Equal(t, []string{"c", "a", "b"}, got)
	})
}

func TestBatchOfMixedSessionsKeepsTheOrderOfEach(t *testing.T) {
	inBubble(t, standard(), servicebus.Options{}, func(t *testing.T, w *world) {
		var ms []*azservicebus.Message
		for i := range 60 {
			s := fmt.Sprint("s", i%3)
			ms = append(ms, message(s, fmt.Sprintf("%s-%d", s, i/3)))
		}
		w.send(topic, ms...)
		for s := range 3 {
			r := w.accept(fmt.Sprint("s", s))
			got := w.receive(r, 20)
			var want []string
			for i := range 20 {
				want = append(want, fmt.Sprintf("s%d-%d", s, i))
			}
			require.Equal(t, want, ids(got))
			w.complete(r, got...)
		}
		require.Equal(t, 60, w.server.Stats(subPath).Completed)
		require.Zero(t, w.server.Stats(subPath).Active)
	})
}

func TestSessionHasOneHolder(t *testing.T) {
	inBubble(t, standard(), servicebus.Options{}, func(t *testing.T, w *world) {
		w.send(topic, message("a", "1"))
		first := w.accept("a")
		_, err := w.client.AcceptSessionForSubscription(t.Context(), topic, subscription, "a", nil)
		require.Equal(t, "com.microsoft:session-cannot-be-locked", condition(t, err))
		w.close(first)
		w.close(w.accept("a"))
	})
}

func TestNamedSessionMayBeEmpty(t *testing.T) {
	inBubble(t, standard(), servicebus.Options{}, func(t *testing.T, w *world) {
		r := w.accept("later")
		require.Equal(t, "later", r.SessionID())
		w.send(topic, message("later", "1"))
		require.Equal(t, []string{"1"}, ids(w.receive(r, 1)))
	})
}

func TestAcceptNextWaitsAndTimesOut(t *testing.T) {
	inBubble(t, standard(), servicebus.Options{}, func(t *testing.T, w *world) {
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 12*time.Second)
		defer cancel()
		_, err := w.client.AcceptNextSessionForSubscription(ctx, topic, subscription, nil)
		e, ok := errors.AsType[*azservicebus.Error](err)
		require.True(t, ok, "got %v", err)
		require.Equal(t, azservicebus.CodeTimeout, e.Code)
		require.InDelta(t, 12, time.Since(start).Seconds(), 0.2)
		require.Zero(t, w.server.Stats(subPath).Waiters)
		// Without a deadline the server's own applies.
		start = time.Now()
		_, err = w.client.AcceptNextSessionForSubscription(t.Context(), topic, subscription, nil)
		e, ok = errors.AsType[*azservicebus.Error](err)
		require.True(t, ok, "got %v", err)
		require.Equal(t, azservicebus.CodeTimeout, e.Code)
		require.Equal(t, 65*time.Second, time.Since(start))
	})
}

func TestWaitingAcceptGetsTheSessionThatComes(t *testing.T) {
	inBubble(t, standard(), servicebus.Options{}, func(t *testing.T, w *world) {
		got := make(chan *azservicebus.SessionReceiver, 1)
		go func() {
			r, err := w.client.AcceptNextSessionForSubscription(t.Context(), topic, subscription, nil)
			if err != nil {
				t.Error(err)
			}
			got <- r
		}()
		virtualtime.Wait()
		require.Equal(t, 1, w.server.Stats(subPath).Waiters)
		w.client = w.connect(nil) // a connection of its own: attaching is serialised on one
		w.send(topic, message("new", "1"))
		r := <-got
		require.Equal(t, "new", r.SessionID())
		w.complete(r, w.receive(r, 1)...)
	})
}

func TestCancelledAcceptTakesNothing(t *testing.T) {
	inBubble(t, standard(), servicebus.Options{}, func(t *testing.T, w *world) {
		waiting := w.connect(nil)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := waiting.AcceptNextSessionForSubscription(ctx, topic, subscription, nil)
			done <- err
		}()
		virtualtime.Wait()
		cancel()
		require.ErrorIs(t, <-done, context.Canceled)
		virtualtime.Wait()
		require.Zero(t, w.server.Stats(subPath).Waiters)
		w.send(topic, message("a", "1"))
		require.Equal(t, "a", w.acceptNext().SessionID())
		// The connection of the cancelled one still works.
		w.client = waiting
		w.send(topic, message("b", "2"))
		require.Equal(t, "b", w.acceptNext().SessionID())
	})
}

func TestClosedSessionGivesBackInOrderWithoutCounting(t *testing.T) {
	inBubble(t, standard(), servicebus.Options{}, func(t *testing.T, w *world) {
		w.send(topic, numbered("a", 5)...)
		r := w.accept("a")
		ms := w.receive(r, 3)
		w.complete(r, ms[0])
		w.close(r)
		r = w.acceptNext()
		ms = w.receive(r, 4)
		require.Equal(t, []string{"a-2", "a-3", "a-4", "a-5"}, ids(ms))
		require.Equal(t, []uint32{1, 1, 1, 1}, counts(ms))
	})
}

func TestSessionLockRunsOut(t *testing.T) {
	inBubble(t, standard(), servicebus.Options{}, func(t *testing.T, w *world) {
		w.send(topic, numbered("a", 3)...)
		r := w.accept("a")
		require.WithinDuration(t, time.Now().Add(30*time.Second), r.LockedUntil(), 0)
		ms := w.receive(r, 2)
		time.Sleep(29 * time.Second)
		require.Equal(t, 1, w.server.Stats(subPath).HeldSessions)
		time.Sleep(2 * time.Second)
		require.Zero(t, w.server.Stats(subPath).HeldSessions)

		other := w.connect(nil)
		r2, err := other.AcceptNextSessionForSubscription(t.Context(), topic, subscription, nil)
		require.NoError(t, err)
		require.Equal(t, "a", r2.SessionID())
		// The old holder cannot complete; its client tries to accept the session again and fails.
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		require.Error(t, r.CompleteMessage(ctx, ms[0], nil))
		again := w.receive(r2, 3)
		require.Equal(t, []string{"a-1", "a-2", "a-3"}, ids(again))
		require.Equal(t, []uint32{2, 2, 1}, counts(again), "only what was delivered under the lost lock counts")
		require.Zero(t, w.server.Stats(subPath).Completed)
	})
}

func TestRenewedSessionLockHolds(t *testing.T) {
	inBubble(t, standard(), servicebus.Options{}, func(t *testing.T, w *world) {
		w.send(topic, message("a", "1"))
		r := w.accept("a")
		ms := w.receive(r, 1)
		for range 10 {
			time.Sleep(20 * time.Second)
			require.NoError(t, r.RenewSessionLock(t.Context(), nil))
			require.WithinDuration(t, time.Now().Add(30*time.Second), r.LockedUntil(), 0)
		}
		w.complete(r, ms...)
		require.Equal(t, 1, w.server.Stats(subPath).Completed)
	})
}

func TestSessionStateIsLimitedByTier(t *testing.T) {
	for premium, limit := range map[bool]int{false: 256 << 10, true: 1 << 20} {
		// The limit of messages must not be met first.
		inBubble(t, standard(), servicebus.Options{Premium: premium, MaxMessageBytes: 4 << 20}, func(t *testing.T, w *world) {
			r := w.accept("a")
			require.NoError(t, r.SetSessionState(t.Context(), make([]byte, limit), nil))
			require.ErrorContains(t, r.SetSessionState(t.Context(), make([]byte, limit+1), nil), fmt.Sprintf("may take %d", limit))
		})
	}
}

func TestSessionState(t *testing.T) {
	inBubble(t, standard(), servicebus.Options{}, func(t *testing.T, w *world) {
		r := w.accept("a")
		got, err := r.GetSessionState(t.Context(), nil)
		require.NoError(t, err)
		require.Nil(t, got)
		require.NoError(t, r.SetSessionState(t.Context(), []byte("where I was"), nil))
		w.close(r)
		r = w.accept("a")
		got, err = r.GetSessionState(t.Context(), nil)
		require.NoError(t, err)
		require.Equal(t, []byte("where I was"), got)
		w.send(topic, message("b", "1"))
		pager := w.client.NewListSessionsForSubscriptionPager(topic, subscription, nil)
		page, err := pager.NextPage(t.Context())
		require.NoError(t, err)
		require.Equal(t, []string{"a", "b"}, page.Sessions)
		require.NoError(t, r.SetSessionState(t.Context(), nil, nil))
		w.close(r)
		require.Equal(t, 1, w.server.Stats(subPath).Sessions)
	})
}
