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
		turns.met()
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
		for range caution {
			turns.take(t.Context())()
		}
		first, second := turns.take(t.Context()), turns.take(t.Context())
		require.Zero(t, time.Since(asked), "none has met another one for long: nobody waits")
		first()
		second()
	})
}
