package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/retry"
	"github.com/sluice-cdc/sluice/tests/internal/checker"
)

// TestG1G2G3G4FailoverTimes measures how long nobody publishes after the leader got a signal, CHAOS_FAILOVERS times for each
// signal, with the services' own settings: from the signal to the first message of a later epoch that the broker takes. It prints a
// table and asserts no time; what is asserted is that nothing was lost, doubled or reordered.
func TestG1G2G3G4FailoverTimes(t *testing.T) {
	times := setting(t, "CHAOS_FAILOVERS", 0)
	if times == 0 {
		t.Skip("CHAOS_FAILOVERS says how many of each: make chaos FAILOVERS=30")
	}
	producer, projector, azuriteAddr := programs(t)
	random := rand.New(rand.NewPCG(1, 0xfa11))
	measured := map[syscall.Signal][]time.Duration{}
	options := ringOptions{name: "failover", seed: 1, rate: 500, producer: producer, projector: projector, blobURL: azuriteAddr}
	_, run := inRing(t, options, func(ctx context.Context, r *ring) error {
		for range times {
			for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
				if _, err := r.ready(ctx); err != nil {
					return err
				}
				// At any moment of a heartbeat and of a standby's poll.
				if err := retry.Sleep(ctx, time.Duration(random.Int64N(int64(2*time.Second)))); err != nil {
					return err
				}
				took, err := r.failover(ctx, signal)
				if err != nil {
					return err
				}
				measured[signal] = append(measured[signal], took)
			}
		}
		return nil
	})
	require.Empty(t, checker.Judge(run))
	t.Logf("from the signal to the first publish of the next leader, %d times each:\n%s", times, table(measured))
}

// failover signals the leader and waits for its successor to publish.
func (r *ring) failover(ctx context.Context, signal syscall.Signal) (time.Duration, error) {
	leader, err := r.ready(ctx)
	if err != nil {
		return 0, err
	}
	epoch, at := r.checkpoints.epoch(), time.Now()
	instance, err := leader.Signal(signal)
	if err != nil {
		return 0, err
	}
	first := at
	err = r.until(ctx, "somebody else publishes", func() (published bool) {
		first, published = r.rec.FirstAfterEpoch(epoch)
		return published
	})
	r.trace.add("%s to %s: %s", signalName(signal), instance, first.Sub(at))
	return first.Sub(at), err
}

func table(measured map[syscall.Signal][]time.Duration) string {
	var text strings.Builder
	text.WriteString("| signal | p50 | p99 | max |\n|---|---|---|---|\n")
	for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		p50, p99, longest := ranks(measured[signal])
		fmt.Fprintf(&text, "| %s | %s | %s | %s |\n", signalName(signal), p50, p99, longest)
	}
	return text.String()
}

// ranks are the nearest ranks; of 30 the 99th percentile is the greatest.
func ranks(durations []time.Duration) (p50, p99, longest time.Duration) {
	sorted := slices.Sorted(slices.Values(durations))
	rank := func(p int) time.Duration { return sorted[(p*len(sorted)+99)/100-1].Round(10 * time.Millisecond) }
	return rank(50), rank(99), rank(100)
}
