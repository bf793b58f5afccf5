package broker

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/virtualtime"
)

const idleFor = 10 * time.Minute

func TestIdleEntitiesAreDeleted(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		b, err := New(Config{
			Queues: []Queue{{Name: "q", Inbound: Inbound{AutoDeleteOnIdle: idleFor}}, {Name: "stays"}},
			Topics: []Topic{{
				Name: "t", Inbound: Inbound{AutoDeleteOnIdle: 3 * idleFor},
				Subscriptions: []Subscription{{Name: "s", AutoDeleteOnIdle: idleFor}, {Name: "other"}},
			}},
		})
		require.NoError(t, err)
		there := func() (out []string) {
			b.Advance()
			for _, path := range []string{"q", "q/$DeadLetterQueue", "t", "t/Subscriptions/s", "t/Subscriptions/other", "stays"} {
				if b.Exists(path) {
					out = append(out, path)
				}
			}
			return out
		}
		all := there()
		require.Len(t, all, 6)
		at, ok := b.NextDeadline()
		require.True(t, ok)
		require.Equal(t, time.Now().Add(idleFor), at)

		time.Sleep(idleFor - time.Nanosecond)
		require.Equal(t, all, there())
		in, err := b.Inbox("q")
		require.NoError(t, err)
		require.NoError(t, in.Send([]*Payload{payload("", "1")})) // used again
		time.Sleep(time.Nanosecond)
		require.Equal(t, []string{"q", "q/$DeadLetterQueue", "t", "t/Subscriptions/other", "stays"}, there(), "the subscription had no receiver")

		e, err := b.Entity("q")
		require.NoError(t, err)
		c := newConsumer("c")
		require.NoError(t, e.Open(&c.Receiver))
		time.Sleep(5 * idleFor) // with a receiver it is in use, whatever comes
		require.Equal(t, []string{"q", "q/$DeadLetterQueue", "stays"}, there(), "the topic went with its other subscription")
		e.Close(&c.Receiver)
		time.Sleep(idleFor - time.Nanosecond)
		require.True(t, b.Exists("q"))
		time.Sleep(time.Nanosecond)
		require.Equal(t, []string{"stays"}, there(), "messages do not keep it")
		isCondition(t, in.Send([]*Payload{payload("", "2")}), NotFound)
		_, ok = b.NextDeadline()
		require.False(t, ok)
	})
}

func TestScheduledMessagesKeepAQueue(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		b, err := New(Config{Queues: []Queue{{Name: "q", Inbound: Inbound{AutoDeleteOnIdle: idleFor}}}})
		require.NoError(t, err)
		in, err := b.Inbox("q")
		require.NoError(t, err)
		later := payload("", "1")
		later.ScheduledAt = time.Now().Add(2 * idleFor)
		require.NoError(t, in.Send([]*Payload{later}))
		time.Sleep(2*idleFor - time.Nanosecond)
		b.Advance()
		require.True(t, b.Exists("q"))
		time.Sleep(idleFor) // it has appeared meanwhile
		b.Advance()
		require.True(t, b.Exists("q"))
		time.Sleep(time.Nanosecond)
		b.Advance()
		require.False(t, b.Exists("q"))
	})
}

func TestIdleTimeHasAMinimum(t *testing.T) {
	_, err := New(Config{
		Queues: []Queue{{Name: "q", Inbound: Inbound{AutoDeleteOnIdle: time.Minute}}},
		Topics: []Topic{{Name: "t", Subscriptions: []Subscription{{Name: "s", AutoDeleteOnIdle: -time.Hour}}}},
	})
	require.ErrorContains(t, err, "queue q: AutoDeleteOnIdle 1m0s is less than 5m0s")
	require.ErrorContains(t, err, "t/Subscriptions/s: AutoDeleteOnIdle -1h0m0s is less than 5m0s")
}
