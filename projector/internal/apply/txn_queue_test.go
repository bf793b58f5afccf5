package apply

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/virtualtime"
)

// G5: transactions that conflict wait for each other, and one that keeps its turn delays none for
// longer than maxWait.
func TestG5AStuckTransactionDelaysNoOther(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		turns := newConflictQueue()
		turns.enter(t.Context()) // none has conflicted yet: no transaction has the turn
		for range 10 {           // as those do that write one document
			meet(t, turns)
		}
		stuck := turns.enter(t.Context())
		for range 3 {
			asked := time.Now()
			done := turns.enter(t.Context())
			require.Equal(t, maxWait, time.Since(asked))
			done()
		}
		stuck()
		asked := time.Now()
		next := turns.enter(t.Context())
		require.Zero(t, time.Since(asked), "the turn was given back, and only by who had it")
		next()

		var line sync.WaitGroup
		for range 20 { // longer together than maxWait, but the queue moves
			line.Go(func() {
				done := turns.enter(t.Context())
				time.Sleep(maxWait / 2)
				done()
			})
		}
		line.Wait()
		require.Equal(t, 20*maxWait/2, time.Since(asked), "some did not wait for their turn")
		asked = time.Now()
		for range maxLot {
			turns.enter(t.Context())()
		}
		first, second := turns.enter(t.Context()), turns.enter(t.Context())
		require.Zero(t, time.Since(asked), "none has met another one for long, so none waits")
		first()
		second()
	})
}

// meet makes two transactions conflict that have begun at the same time.
func meet(t *testing.T, turns *conflictQueue) {
	t.Helper()
	for range maxLot {
		if !turns.mustWait() {
			break
		}
	}
	turns.conflicted()
	turns.conflicted() // the loser of another pair
}

// Two that conflict by chance delay few; the more often transactions conflict, the more of them run
// one after the other.
func TestMoreConflictsMakeMoreTransactionsWait(t *testing.T) {
	turns := newConflictQueue()
	lot := func() (n int) {
		for turns.mustWait() {
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
	for range maxLot {
		require.False(t, turns.mustWait())
	}
	meet(t, turns)
	require.Equal(t, minLot, lot(), "they had not met for long")
}
