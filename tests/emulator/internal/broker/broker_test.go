package broker

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/virtualtime"
)

const lockTime = 30 * time.Second

func namespace(t testing.TB, dedup time.Duration) (*Broker, *Inbox, *Entity) {
	t.Helper()
	b, err := New(Config{Topics: []Topic{{
		Name:    "t",
		Inbound: Inbound{RequiresDuplicateDetection: dedup > 0, DuplicateDetectionWindow: dedup},
		Subscriptions: []Subscription{{
			Name: "s", Outbound: Outbound{RequiresSession: true, LockDuration: lockTime, MaxDeliveryCount: 3},
		}},
	}}})
	require.NoError(t, err)
	in, err := b.Inbox("T") // the service ignores case
	require.NoError(t, err)
	e, err := b.Entity("t/subscriptions/S")
	require.NoError(t, err)
	return b, in, e
}

func payload(session, id string) *Payload {
	return &Payload{MessageID: id, HasMessageID: true, SessionID: session, HasSessionID: true}
}

// consumer is a receiver that records what happens to it.
type consumer struct {
	Receiver
	grants chan SessionGrant
	errs   chan error
	wakes  chan struct{}
	lost   chan *Error
}

func newConsumer(name string) *consumer {
	c := &consumer{
		grants: make(chan SessionGrant, 1), errs: make(chan error, 1),
		wakes: make(chan struct{}, 1000), lost: make(chan *Error, 1),
	}
	c.Receiver = Receiver{
		Name: name, Wake: func() { c.wakes <- struct{}{} },
		Accepted: func(g SessionGrant, err error) {
			if err != nil {
				c.errs <- err
				return
			}
			c.grants <- g
		},
		Lost: func(e *Error) { c.lost <- e },
	}
	return c
}

func accept(t *testing.T, e *Entity, id *string) *consumer {
	t.Helper()
	c := newConsumer("r")
	require.NoError(t, e.AcceptSession(&c.Receiver, id, time.Minute))
	<-c.grants
	return c
}

func ids(ds []Delivery) []string {
	var out []string
	for _, d := range ds {
		out = append(out, d.MessageID)
	}
	return out
}

func isCondition(t *testing.T, err error, c Condition) {
	t.Helper()
	var e *Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, c, e.Condition)
}

func TestALockExpiresAtItsExactTime(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		b, in, e := namespace(t, 0)
		require.NoError(t, in.Send([]*Payload{payload("a", "1")}))
		c := accept(t, e, nil)
		ds := e.Take(&c.Receiver, 1, nil)
		at, ok := b.NextDeadline()
		require.True(t, ok)
		require.Equal(t, time.Now().Add(lockTime), at)
		time.Sleep(lockTime - time.Nanosecond)
		_, err := e.RenewSession("a", "r")
		require.NoError(t, err)
		time.Sleep(lockTime) // nothing called Advance
		isCondition(t, e.Settle(&c.Receiver, ds[0].Token, Settlement{Outcome: Complete}), SessionLockLost)
		require.Equal(t, SessionLockLost, (<-c.lost).Condition)
		_, err = e.RenewSession("a", "r")
		isCondition(t, err, SessionLockLost)
		require.Empty(t, e.Take(&c.Receiver, 1, nil))
	})
}

func TestLostSessionDeadLettersInOrder(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		_, in, e := namespace(t, 0)
		for i := range 20 {
			require.NoError(t, in.Send([]*Payload{payload("a", fmt.Sprintf("%02d", i))}))
		}
		for range 3 {
			c := accept(t, e, nil)
			require.Len(t, e.Take(&c.Receiver, 15, nil), 15)
			time.Sleep(lockTime)
		}
		dead := e.deadQueue.Peek(0, 100, nil)
		var want []string
		for i := range 15 {
			want = append(want, fmt.Sprintf("%02d", i))
		}
		require.Empty(t, ids(dead), "nothing has looked yet")
		c := accept(t, e, nil)
		require.Equal(t, want, ids(e.deadQueue.Peek(0, 100, nil)))
		require.Equal(t, []string{"15", "16", "17", "18", "19"}, ids(e.Take(&c.Receiver, 15, nil)))
	})
}

// When a lost lock dead-letters the first message of a session and returns the next, the session
// must not be removed in between, or a second one with the same id would appear.
func TestASessionIsKeptWhileItsMessagesComeBack(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		_, in, e := namespace(t, 0)
		require.NoError(t, in.Send([]*Payload{payload("a", "1")}))
		for range 2 {
			c := accept(t, e, nil)
			ds := e.Take(&c.Receiver, 1, nil)
			require.NoError(t, e.Settle(&c.Receiver, ds[0].Token, Settlement{Outcome: Abandon}))
			e.Close(&c.Receiver)
		}
		require.NoError(t, in.Send([]*Payload{payload("a", "2")}))
		c := accept(t, e, nil)
		require.Len(t, e.Take(&c.Receiver, 2, nil), 2)
		time.Sleep(lockTime)
		require.NoError(t, in.Send([]*Payload{payload("a", "3")}))
		c = accept(t, e, nil)
		require.Equal(t, []string{"2", "3"}, ids(e.Take(&c.Receiver, 9, nil)))
		other := newConsumer("other")
		require.NoError(t, e.AcceptSession(&other.Receiver, nil, time.Minute))
		require.Empty(t, other.grants)
		require.Len(t, e.sessions, 1)
	})
}

func TestDedupWindow(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		_, in, _ := namespace(t, time.Minute)
		send := func() int {
			require.NoError(t, in.Send([]*Payload{payload("a", "1")}))
			return in.accepted
		}
		require.Equal(t, 1, send())
		time.Sleep(time.Minute - time.Nanosecond)
		require.Equal(t, 1, send())
		time.Sleep(time.Nanosecond)
		require.Equal(t, 2, send())
		time.Sleep(time.Minute - time.Nanosecond)
		require.Equal(t, 2, send())
	})
}

func TestHistoryForgetsWhatIsOutsideTheWindow(t *testing.T) {
	h := newHistory(time.Second)
	now := time.Unix(0, 0)
	for i := range 100_000 {
		require.False(t, h.seen(dedupKey(&Payload{MessageID: fmt.Sprint(i)}, false), now))
		now = now.Add(time.Millisecond)
	}
	require.LessOrEqual(t, len(h.known), 1001)
	require.LessOrEqual(t, len(h.order), 4000)
}

func TestAWaiterTimesOutAndIsRemoved(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		b, in, e := namespace(t, 0)
		c := newConsumer("r")
		require.NoError(t, e.AcceptSession(&c.Receiver, nil, time.Second))
		time.Sleep(time.Second)
		b.Advance()
		isCondition(t, <-c.errs, Timeout)
		require.NoError(t, in.Send([]*Payload{payload("a", "1")}))
		require.Empty(t, c.grants)
		require.Equal(t, 1, b.Stats("t/Subscriptions/s").ReadySessions)
	})
}

func TestMessagesGoToTheRemainingReceivers(t *testing.T) {
	b, err := New(Config{Queues: []Queue{{Name: "q"}}})
	require.NoError(t, err)
	in, err := b.Inbox("q")
	require.NoError(t, err)
	e, err := b.Entity("q")
	require.NoError(t, err)
	a, z := newConsumer("a"), newConsumer("z")
	require.Empty(t, e.Take(&a.Receiver, 1, nil))
	require.Empty(t, e.Take(&z.Receiver, 1, nil))
	require.NoError(t, in.Send([]*Payload{{MessageID: "1"}}))
	require.Len(t, a.wakes, 1, "it has waited longest")
	require.Empty(t, z.wakes)
	e.Close(&a.Receiver) // before it took anything
	require.Len(t, z.wakes, 1)
	require.Equal(t, []string{"1"}, ids(e.Take(&z.Receiver, 1, nil)))
}

func TestFifoAgainstAModel(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	var q fifo
	var model, out []int64
	taken, waiting := map[int64]*message{}, map[int64]*message{}
	next := int64(0)
	for range 20_000 {
		switch r.IntN(4) {
		case 3:
			if len(model) == 0 {
				continue
			}
			i := r.IntN(len(model))
			q.remove(waiting[model[i]])
			model = slices.Delete(model, i, i+1)
		case 0:
			next++
			waiting[next] = &message{seq: next}
			q.push(waiting[next])
			model = append(model, next)
		case 1:
			m := q.pop()
			if len(model) == 0 {
				require.Nil(t, m)
				continue
			}
			require.Equal(t, model[0], m.seq)
			model = model[1:]
			taken[m.seq] = m
			out = append(out, m.seq)
		case 2:
			if len(out) == 0 {
				continue
			}
			i := r.IntN(len(out))
			m := taken[out[i]]
			out = slices.Delete(out, i, i+1)
			q.putBack(m)
			at, _ := slices.BinarySearch(model, m.seq)
			model = slices.Insert(model, at, m.seq)
		}
		require.Equal(t, len(model), q.len())
	}
	left := []int64{}
	for m := q.pop(); m != nil; m = q.pop() {
		left = append(left, m.seq)
	}
	require.Equal(t, model, left)
	require.Zero(t, q.removed)
}

// Many receivers accept, settle in every way and close at random moments. The completions of a
// session must come in order, each once.
func TestConcurrentReceiversKeepEverySessionInOrder(t *testing.T) {
	const sessions, each, workers = 12, 200, 6
	b, err := New(Config{Queues: []Queue{{Name: "q", Outbound: Outbound{RequiresSession: true, MaxDeliveryCount: 1 << 30}}}})
	require.NoError(t, err)
	in, err := b.Inbox("q")
	require.NoError(t, err)
	e, err := b.Entity("q")
	require.NoError(t, err)
	var mu sync.Mutex
	done := map[string][]string{}
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range each {
			var batch []*Payload
			for s := range sessions {
				batch = append(batch, payload(fmt.Sprint(s), fmt.Sprint(i)))
			}
			if err := in.Send(batch); err != nil {
				t.Error(err)
			}
		}
	})
	for w := range workers {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(w), 7))
			for b.Stats("q").Completed < sessions*each {
				c := newConsumer(fmt.Sprint("w", w))
				if err := e.AcceptSession(&c.Receiver, nil, time.Millisecond); err != nil {
					t.Error(err)
					return
				}
				var g SessionGrant
				select {
				case g = <-c.grants:
				case <-time.After(5 * time.Millisecond):
					e.Close(&c.Receiver)
					continue
				}
				for range 1 + r.IntN(3) {
					for _, d := range e.Take(&c.Receiver, 1+r.IntN(20), nil) {
						o := Outcome(r.IntN(6))
						if o > Release {
							o = Complete
						}
						if o == Complete {
							mu.Lock()
							done[g.SessionID] = append(done[g.SessionID], d.MessageID)
							mu.Unlock()
						}
						if err := e.Settle(&c.Receiver, d.Token, Settlement{Outcome: o}); err != nil {
							t.Error(err)
						}
						if o != Complete {
							break // the others would overtake it; closing returns them
						}
					}
					if r.IntN(2) == 0 {
						break
					}
					e.Close(&c.Receiver)
				}
				e.Close(&c.Receiver)
			}
		})
	}
	wg.Wait()
	var want []string
	for i := range each {
		want = append(want, fmt.Sprint(i))
	}
	for s := range sessions {
		require.Equal(t, want, done[fmt.Sprint(s)], "session %d", s)
	}
	require.Zero(t, b.Stats("q").Active)
	require.Zero(t, b.Stats("q").Sessions)
}

// BenchmarkAcceptNext shows that the number of waiting sessions does not matter.
func BenchmarkAcceptNext(b *testing.B) {
	for _, n := range []int{100, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			_, in, e := namespace(b, 0)
			for i := range n {
				require.NoError(b, in.Send([]*Payload{payload(fmt.Sprint(i), "1")}))
			}
			r := Receiver{Accepted: func(SessionGrant, error) {}}
			for b.Loop() {
				c := r
				require.NoError(b, e.AcceptSession(&c, nil, time.Minute))
				e.Close(&c)
			}
		})
	}
}
