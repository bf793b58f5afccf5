package leader

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/virtualtime"
)

// G4: a lease that cannot be renewed expires, even if all checkpoints are written, and a standby
// acquires a free lease at once.
func TestG4ALeaderWhoseLeaseRunsOutStopsBeforeItDoes(t *testing.T) {
	for phase := range 10 {
		virtualtime.Test(t, func(t *testing.T) {
			m, h := &memory{}, newHistory()
			a := join(t, m, h, testConfig("a"))
			first := <-h.begun
			b := join(t, m, h, testConfig("b"))
			time.Sleep(time.Duration(phase) * 700 * time.Millisecond) // virtual
			a.view.set(on("renew", away), nil)
			second := <-h.begun
			require.NotSame(t, first, second)
			require.False(t, first.ended.IsZero(), "phase %d: it still leads", phase)
			require.False(t, second.began.Before(first.ended), "phase %d", phase)
			a.view.set(nil, nil)
			a.leave(t)
			b.leave(t)
		})
	}
}

// A failed renewal is retried at the interval of the heartbeats: at its own interval, two failures
// in a row would cost a healthy leader the lease.
func TestAFailedRenewalIsTriedAgainBeforeTheLeaseRunsOut(t *testing.T) {
	n := 0
	keepsLeading(t, func(_ *memory, a *view) {
		a.set(on("renew", func(context.Context, string) error {
			if n++; n%4 != 0 {
				return errAway
			}
			return nil
		}), nil)
		time.Sleep(5 * time.Minute) // virtual
	})
	require.LessOrEqual(t, n, 4*(5*60+10)/(5+3)+4, "in between at its own pace")
}
