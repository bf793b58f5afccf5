package apply

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/virtualtime"
)

// G5: transactions that meet go one after the other, and one that is stuck with its turn holds up nobody for longer than courtesy asks.
func TestG5ATransactionThatIsStuckWithItsTurnHoldsUpNobody(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		turns := newTurns()
		turns.take(t.Context()) // none has met another one yet: nobody has the turn
		for range 10 {          // as those do that write one document
			meet(t, turns)
		}
		stuck := turns.take(t.Context())
		for range 3 {
			asked := time.Now()
			done := turns.take(t.Context())
			require.Equal(t, courtesy, time.Since(asked))
			done()
		}
		stuck()
		asked := time.Now()
		next := turns.take(t.Context())
		require.Zero(t, time.Since(asked), "the turn was given back, and only by who had it")
		next()

		var line sync.WaitGroup
		for range 20 { // longer together than courtesy, but the line moves
			line.Go(func() {
				done := turns.take(t.Context())
				time.Sleep(courtesy / 2)
				done()
			})
		}
		line.Wait()
		require.Equal(t, 20*courtesy/2, time.Since(asked), "some did not wait for their turn")
		asked = time.Now()
		for range mostCaution {
			turns.take(t.Context())()
		}
		first, second := turns.take(t.Context()), turns.take(t.Context())
		require.Zero(t, time.Since(asked), "none has met another one for long: nobody waits")
		first()
		second()
	})
}

// meet has two transactions meet that have begun side by side.
func meet(t *testing.T, turns *turns) {
	t.Helper()
	for range mostCaution {
		if !turns.cautious() {
			break
		}
	}
	turns.met()
	turns.met() // the loser of another pair
}

// Two that met by chance hold up few; the more often transactions meet, the more of them go one after the other.
func TestTheMoreOftenTransactionsMeetTheMoreTakeTurns(t *testing.T) {
	turns := newTurns()
	lot := func() (n int) {
		for turns.cautious() {
			n++
		}
		return n
	}
	require.Zero(t, lot(), "none has met another one")
	var lots []int
	for range 6 {
		meet(t, turns)
		lots = append(lots, lot())
	}
	require.Equal(t, []int{4, 8, 16, 32, 64, 64}, lots)
	for range mostCaution {
		require.False(t, turns.cautious())
	}
	meet(t, turns)
	require.Equal(t, leastCaution, lot(), "they had not met for long")
}
