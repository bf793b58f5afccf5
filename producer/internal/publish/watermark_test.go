package publish

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/producer/internal/checkpoint"
	"github.com/sluice-cdc/sluice/shared/virtualtime"
)

func after(n int) checkpoint.Progress { return checkpoint.Progress{Position: fmt.Sprintf("%06d", n)} }

func TestAnIdleStreamBehindAStuckEventDoesNotGrowTheWatermark(t *testing.T) {
	w := NewWatermark(checkpoint.Progress{})
	w.Add(after(1))
	for n := range 10_000 {
		w.Pass(after(n + 2))
	}
	require.Len(t, w.entries, 64)
}

// G1: against a model that keeps everything: whatever the order of acknowledgements, and whatever
// needs none, the watermark is the end of the longest acknowledged prefix, behind the start.
func TestG1WatermarkMatchesTheModel(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 0))
		start := checkpoint.Progress{Position: "start", Published: 10}
		w := NewWatermark(start)
		type step struct{ event, acked bool }
		var steps []step
		open := map[int]uint64{} // the sequence numbers of the steps that are not acknowledged
		for range 500 {
			n := len(steps)
			switch random.IntN(5) {
			case 0:
				w.Pass(after(n))
				steps = append(steps, step{acked: true})
			case 1, 2:
				open[n] = w.Add(after(n))
				steps = append(steps, step{event: true})
			default:
				if len(open) == 0 {
					continue
				}
				i := slices.Sorted(maps.Keys(open))[random.IntN(len(open))]
				w.Ack(open[i])
				steps[i].acked = true
				delete(open, i)
			}
			want := start
			for n, s := range steps {
				if !s.acked {
					break
				}
				want.Position = after(n).Position
				if s.event {
					want.Published++
				}
			}
			require.Equal(t, want, w.Progress(), "seed %d", seed)
		}
	}
}

// G1: a chunk of a snapshot is stored only after everything before it is acknowledged.
func TestG1WaitReturnsOnceEverythingIsAcknowledged(t *testing.T) {
	virtualtime.Test(t, func(t *testing.T) {
		w := NewWatermark(checkpoint.Progress{})
		require.NoError(t, w.Wait(t.Context()), "nothing was registered")
		first, second := w.Add(after(1)), w.Add(after(2))
		w.Pass(after(3))
		waited := make(chan error, 1)
		go func() { waited <- w.Wait(t.Context()) }()
		w.Ack(second)
		virtualtime.Wait()
		require.Empty(t, waited, "1 is missing")
		w.Ack(first)
		require.NoError(t, <-waited)
		require.Equal(t, "000003", w.Progress().Position)

		w.Add(after(4))
		ended, end := context.WithCancelCause(t.Context())
		end(errFencePassed)
		require.ErrorIs(t, w.Wait(ended), errFencePassed)
	})
}
