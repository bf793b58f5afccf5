package publish

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/producer/internal/checkpoint"
	"github.com/sluice-cdc/sluice/shared/virtualtime"
)

func after(n int) checkpoint.Progress { return checkpoint.Progress{Position: fmt.Sprintf("%06d", n)} }

// G1: the checkpoint only ever covers a contiguous prefix of acknowledged events.
func TestG1WatermarkNeverPassesAGap(t *testing.T) {
	w := NewWatermark(checkpoint.Progress{Position: "start", Published: 10})
	first, second, third := w.Add(after(1)), w.Add(after(2)), w.Add(after(3))

	w.Ack(third)
	require.Equal(t, checkpoint.Progress{Position: "start", Published: 10}, w.Progress(), "1 and 2 are missing")
	w.Ack(first)
	require.Equal(t, checkpoint.Progress{Position: "000001", Published: 11}, w.Progress(), "2 is missing")
	w.Ack(second)
	require.Equal(t, checkpoint.Progress{Position: "000003", Published: 13}, w.Progress())
}

func TestG1ProgressWithoutAnEventWaitsForEventsBefore(t *testing.T) {
	w := NewWatermark(checkpoint.Progress{})
	event := w.Add(after(1))
	w.Pass(after(2))
	w.Pass(after(3))
	require.Empty(t, w.Progress().Position)
	w.Ack(event)
	require.Equal(t, checkpoint.Progress{Position: "000003", Published: 1}, w.Progress())
	w.Pass(after(4))
	require.Equal(t, checkpoint.Progress{Position: "000004", Published: 1}, w.Progress())
}

func TestAnIdleStreamBehindAStuckEventDoesNotGrowTheWatermark(t *testing.T) {
	w := NewWatermark(checkpoint.Progress{})
	w.Add(after(1))
	for n := range 10_000 {
		w.Pass(after(n + 2))
	}
	require.Len(t, w.entries, 64)
}

// Against a model that keeps everything: whatever the order of acknowledgements, the watermark is
// the end of the longest acknowledged prefix.
func TestG1WatermarkMatchesTheModel(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 0))
		w := NewWatermark(checkpoint.Progress{})
		var acked []bool
		var open []uint64
		for range 500 {
			switch {
			case len(open) > 0 && random.IntN(2) == 0:
				i := random.IntN(len(open))
				w.Ack(open[i])
				acked[open[i]] = true
				open[i] = open[len(open)-1]
				open = open[:len(open)-1]
			default:
				n := len(acked)
				acked = append(acked, false)
				open = append(open, w.Add(after(n)))
			}
			prefix := 0
			for prefix < len(acked) && acked[prefix] {
				prefix++
			}
			want := checkpoint.Progress{Published: int64(prefix)}
			if prefix > 0 {
				want.Position = after(prefix - 1).Position
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
