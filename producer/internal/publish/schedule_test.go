package publish

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// Against a model that keeps everything: no matter in which order items are pushed, leased, partly
// taken and returned, a session is leased once at a time, its items come in order and completely,
// and sessions take turns in order.
func TestG2AScheduleLeasesASessionOnceAndKeepsItsOrder(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 0))
		s := newSchedule()
		pushed, taken := map[string]uint64{}, map[string]uint64{}
		leased := map[string]*backlog{}
		total := 0
		take := func(b *backlog, n int) {
			for _, i := range b.items[:n] {
				taken[b.session]++
				require.Equal(t, taken[b.session], i.sequence, "seed %d", seed)
			}
			s.take(b, n)
			total -= n
		}
		for range 2000 {
			switch random.IntN(4) {
			case 0, 1:
				session := fmt.Sprint(random.IntN(12))
				pushed[session]++
				s.push(&item{session: session, sequence: pushed[session]})
				total++
			case 2:
				b := s.lease()
				if b == nil {
					require.Zero(t, s.ready)
					continue
				}
				require.Nil(t, leased[b.session], "leased twice")
				require.NotEmpty(t, b.items)
				if random.IntN(8) == 0 {
					s.returnLease(b)
					require.Same(t, b, s.lease(), "its turn is not lost")
				}
				leased[b.session] = b
				take(b, 1+random.IntN(len(b.items)))
			case 3:
				for session, b := range leased {
					s.release(b)
					delete(leased, session)
					break
				}
			}
			require.Equal(t, total, s.waiting)
		}
		for _, b := range leased {
			s.release(b)
		}
		for b := s.lease(); b != nil; b = s.lease() {
			take(b, len(b.items))
			s.release(b)
		}
		require.Equal(t, pushed, taken)
		require.Zero(t, s.ready)
		require.Zero(t, s.waiting)
		require.Empty(t, s.sessions)
		require.Empty(t, s.queue)
	}
}

// A session with many items does not delay the others: after its batch it queues up behind them.
func TestSessionsTakeTurns(t *testing.T) {
	s := newSchedule()
	for n := range uint64(10) {
		s.push(&item{session: "hot", sequence: n})
	}
	for _, session := range []string{"a", "b"} {
		s.push(&item{session: session})
	}
	var turns []string
	for range 4 {
		b := s.lease()
		turns = append(turns, b.session)
		s.take(b, min(4, len(b.items)))
		s.release(b)
	}
	require.Equal(t, []string{"hot", "a", "b", "hot"}, turns)
}

// A session can be leased while it has no items waiting or outstanding, so that a probe of it is
// never sent behind a later message.
func TestOnlyAnEmptySessionIsLeasedForAProbe(t *testing.T) {
	s := newSchedule()
	s.push(&item{session: "a"})
	require.Nil(t, s.leaseEmpty("a"), "it waits")
	leased := s.lease()
	s.take(leased, 1)
	require.Nil(t, s.leaseEmpty("a"), "it is under way")
	s.release(leased)

	held := s.leaseEmpty("a")
	require.NotNil(t, held)
	require.Nil(t, s.leaseEmpty("a"), "it is held")
	s.push(&item{session: "a"})
	require.Nil(t, s.lease(), "it waits for the end of the hold")
	require.Zero(t, s.ready)
	s.release(held)
	require.Equal(t, 1, s.ready)
	require.Same(t, held, s.lease())
}

// Dropped items are never leased. Those of a session that a lane holds are dropped once it is
// released.
func TestDroppedItemsAreNeverLeased(t *testing.T) {
	s := newSchedule()
	for n, session := range []string{"a", "b", "a", "b", "c"} {
		s.push(&item{session: session, sequence: uint64(n)})
	}
	a := s.lease()
	s.take(a, 1)
	s.dropFrom(3)
	require.Equal(t, 1, s.ready, "the first of b")
	require.Equal(t, 2, s.waiting, "and one of a")
	b := s.lease()
	require.Equal(t, "b", b.session)
	require.Len(t, b.items, 1)
	require.Nil(t, s.lease(), "c is behind the cut")
	s.dropFrom(0)
	s.release(a)
	s.release(b)
	require.Nil(t, s.lease())
	require.Zero(t, s.waiting)
	require.Empty(t, s.sessions)
}
