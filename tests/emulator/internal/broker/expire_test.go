package broker

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/virtualtime"
	"github.com/sluice-cdc/sluice/tests/emulator/servicebus/entity"
)

const live = time.Minute

// mortal returns a queue whose messages live for a minute and are then dead-lettered.
func mortal(t *testing.T, sessions bool) (*Broker, *Inbox, *Entity) {
	t.Helper()
	b, err := New(Config{Queues: []Queue{{
		Name: "q", Inbound: Inbound{DefaultMessageTimeToLive: live},
		Outbound: Outbound{RequiresSession: sessions, DeadLetteringOnMessageExpiration: true, LockDuration: entity.MaxLockDuration},
	}}})
	require.NoError(t, err)
	in, err := b.Inbox("q")
	require.NoError(t, err)
	e, err := b.Entity("q")
	require.NoError(t, err)
	return b, in, e
}

func TestMessagesExpireWithoutReceivers(t *testing.T) {
	for _, sessions := range []bool{false, true} {
		virtualtime.Test(t, func(t *testing.T) {
			b, in, e := mortal(t, sessions)
			short := payload("a", "short")
			short.TimeToLive = time.Second
			require.NoError(t, in.Send([]*Payload{payload("a", "1"), short, payload("b", "2")}))
			at, ok := b.NextDeadline()
			require.True(t, ok)
			require.Equal(t, time.Now().Add(time.Second), at, "the clock is informed")

			time.Sleep(time.Second)
			s := b.Stats("q")
			require.Equal(t, []int{2, 1, 1}, []int{s.Active, s.Expired, s.DeadLettered})
			time.Sleep(live - time.Second)
			b.Advance() // as the clock does
			require.Equal(t, []string{"short", "1", "2"}, ids(e.deadQueue.Peek(0, 10, nil)))
			for _, d := range e.deadQueue.Peek(0, 10, nil) {
				require.Equal(t, ReasonExpired, d.DeadLetter.Reason)
			}
			s = b.Stats("q")
			require.Equal(t, []int{0, 3, 3}, []int{s.Active, s.Expired, s.DeadLettered})
			require.Equal(t, []int{0, 0}, []int{s.Sessions, s.ReadySessions}, "a session of expired messages is not granted")
			require.NoError(t, in.Send([]*Payload{payload("a", "3")}))
			if sessions {
				c := accept(t, e, nil)
				require.Equal(t, []string{"3"}, ids(e.Take(&c.Receiver, 9, nil)))
			}
		})
	}
}

// Both expired messages and expired locks are handled in order.
func TestSimultaneousExpiriesHappenInOrder(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		b, in, e := mortal(t, false)
		e.cfg.MaxDeliveryCount, e.cfg.LockDuration = 1, time.Second
		var batch []*Payload
		var locked, waiting []string
		for i := range 40 {
			id := fmt.Sprint(i)
			batch = append(batch, payload("", id))
			if i < 20 {
				locked = append(locked, id)
			} else {
				waiting = append(waiting, id)
			}
		}
		require.NoError(t, in.Send(batch))
		c := newConsumer("c")
		require.NoError(t, e.Open(&c.Receiver))
		require.Len(t, e.Take(&c.Receiver, 20, nil), 20)
		time.Sleep(time.Second)
		b.Advance()
		require.Equal(t, locked, ids(e.deadQueue.Peek(0, 100, nil)))
		time.Sleep(live)
		b.Advance()
		require.Equal(t, append(locked, waiting...), ids(e.deadQueue.Peek(0, 100, nil)))
	})
}

// A locked message expires when it comes back, and a deferred one never does.
func TestALockedMessageExpiresWhenItComesBack(t *testing.T) {
	for _, sessions := range []bool{false, true} {
		virtualtime.Test(t, func(t *testing.T) {
			b, in, e := mortal(t, sessions)
			require.NoError(t, in.Send([]*Payload{payload("a", "1"), payload("a", "2"), payload("a", "3"), payload("a", "4")}))
			c := newConsumer("c")
			if sessions {
				c = accept(t, e, nil)
			} else {
				require.NoError(t, e.Open(&c.Receiver))
			}
			got := e.Take(&c.Receiver, 3, nil)
			settle := func(i int, o Outcome) {
				t.Helper()
				require.NoError(t, e.Settle(&c.Receiver, got[i].Token, Settlement{Outcome: o}))
			}
			settle(2, Defer)
			time.Sleep(live)
			s := b.Stats("q")
			require.Equal(t, []int{3, 1}, []int{s.Active, s.Expired}, "only the one without a lock")
			settle(0, Complete)
			settle(1, Release)
			time.Sleep(time.Hour) // the deferred one does not expire
			s = b.Stats("q")
			require.Equal(t, []int{1, 2, 1}, []int{s.Active, s.Expired, s.Deferred})
			require.Equal(t, []string{"4", "2"}, ids(e.deadQueue.Peek(0, 10, nil)))
		})
	}
}

// An expired message that a lost lock returns is dead-lettered, and the rest of the session
// remains.
func TestExpiredMessagesOfAReturnedSessionAreDeadLettered(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		b, in, e := mortal(t, true)
		require.NoError(t, in.Send([]*Payload{payload("a", "1")}))
		c := accept(t, e, nil)
		require.Len(t, e.Take(&c.Receiver, 9, nil), 1)
		time.Sleep(live)
		require.NoError(t, in.Send([]*Payload{payload("a", "2")}))
		e.Close(&c.Receiver)
		require.Equal(t, 1, b.Stats("q").DeadLettered)
		c = accept(t, e, nil)
		require.Equal(t, []string{"2"}, ids(e.Take(&c.Receiver, 9, nil)))
	})
}

// The memory in use is that of the existing messages.
func TestExpiriesOfCompletedMessagesAreDropped(t *testing.T) {
	_, in, e := mortal(t, false)
	c := newConsumer("c")
	require.NoError(t, e.Open(&c.Receiver))
	for i := range 20_000 {
		require.NoError(t, in.Send([]*Payload{payload("", fmt.Sprint(i))}))
		for _, d := range e.Take(&c.Receiver, 1, nil) {
			require.NoError(t, e.Settle(&c.Receiver, d.Token, Settlement{Outcome: Complete}))
		}
		for len(c.wakes) > 0 {
			<-c.wakes
		}
	}
	require.LessOrEqual(t, len(e.expiries.heap), 1024)
	for _, d := range e.expiries.heap {
		require.Nil(t, d.msg.Payload, "nor does a deadline keep a body")
	}
}
