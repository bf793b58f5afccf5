package leader

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/producer/internal/checkpoint"
	"github.com/sluice-cdc/sluice/shared/virtualtime"
)

// Many members, each with random faults of every kind: epochs grow by one, and the periods in which
// two terms may send never overlap.
func TestG4TermsNeverOverlapUnderRandomFaults(t *testing.T) {
	for seed := range uint64(60) {
		virtualtime.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 3))
			m, h := &memory{}, newHistory()
			var members []*member
			for i := range 3 {
				members = append(members, join(t, m, h, testConfig(fmt.Sprintf("m%d", i))))
			}
			for range 40 {
				time.Sleep(time.Duration(random.IntN(6000)) * time.Millisecond)
				v := members[random.IntN(len(members))].view
				switch random.IntN(5) {
				case 0:
					v.set(hang, nil)
				case 1:
					v.set(nil, hang) // the request arrives, the response does not
				case 2:
					slow := time.Duration(random.IntN(5000)) * time.Millisecond
					v.set(func(ctx context.Context, _ string) error {
						select {
						case <-time.After(slow):
							return nil
						case <-ctx.Done():
							return ctx.Err()
						}
					}, nil)
				default:
					v.set(nil, nil)
				}
			}
			for _, e := range members {
				e.view.set(nil, nil)
			}
			for _, e := range members {
				e.leave(t)
			}
			judgeTenures(t, seed, h.tenures, m.writes)
		})
	}
}

func judgeTenures(t *testing.T, seed uint64, tenures []*tenure, writes []checkpoint.Record) {
	t.Helper()
	for i := 1; i < len(tenures); i++ {
		before, now := tenures[i-1], tenures[i]
		require.Greater(t, now.epoch, before.epoch, "seed %d", seed)
		require.False(t, now.began.Before(before.ended), "seed %d: epoch %d began at %v, epoch %d ended at %v",
			seed, now.epoch, now.began, before.epoch, before.ended)
	}
	for i := 1; i < len(writes); i++ {
		require.LessOrEqual(t, writes[i-1].Epoch, writes[i].Epoch, "seed %d: a stale leader wrote", seed)
	}
}
