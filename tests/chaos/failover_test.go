package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/retry"
	"github.com/sluice-cdc/sluice/tests/internal/child"
)

// ends are the ways in which a leader ends: with its parent, as when a machine is lost; alone, as
// after a panic or when memory runs out; or cleanly.
var ends = []struct {
	name string
	end  func(*child.Slot) (instance string, err error)
}{
	{"SIGKILL, parent and child", func(s *child.Slot) (string, error) { return s.Signal(syscall.SIGKILL) }},
	{"SIGKILL, the child", (*child.Slot).Crash},
	{"SIGTERM", func(s *child.Slot) (string, error) { return s.Signal(syscall.SIGTERM) }},
}

// TestG1G2G3G4FailoverTimes measures how long no replica publishes after the leader has ended,
// CHAOS_FAILOVERS times in each way, with the default settings and a round trip of CHAOS_LATENCY
// milliseconds, and the checkpoint in the CHAOS_STORE blob or mongodb: from the end to the first
// message of a later epoch that the broker accepts. It prints a table and asserts no time. It does
// assert that no event is lost, duplicated or reordered.
func TestG1G2G3G4FailoverTimes(t *testing.T) {
	times := setting(t, "CHAOS_FAILOVERS", 0)
	if times == 0 {
		t.Skip("CHAOS_FAILOVERS sets how many of each: make chaos FAILOVERS=30")
	}
	built := programs(t)
	random := rand.New(rand.NewPCG(1, 0xfa11))
	measured := map[string][]time.Duration{}
	options := ringOptions{
		name: "failover", seed: 1, rate: 500, services: built,
		latency: time.Duration(setting(t, "CHAOS_LATENCY", 0)) * time.Millisecond, inMongo: os.Getenv("CHAOS_STORE") == "mongodb",
	}
	inRing(t, options, func(ctx context.Context, r *ring) error {
		for range times {
			for _, lost := range ends {
				if _, err := r.ready(ctx); err != nil {
					return err
				}
				// This hits any moment of a heartbeat and of a standby's poll.
				if err := retry.Sleep(ctx, time.Duration(random.Int64N(int64(2*time.Second)))); err != nil {
					return err
				}
				took, err := r.failover(ctx, lost.name, lost.end)
				if err != nil {
					return err
				}
				measured[lost.name] = append(measured[lost.name], took)
			}
		}
		return nil
	})
	t.Logf("from the end to the first publish of the next leader, %d times each:\n%s", times, table(measured))
}

// G4: when a leader's process dies, its parent releases the lease. So the next leader finds it
// free, long before it could break it.
func TestG4TheLeaseOfADeadProcessIsReleased(t *testing.T) {
	t.Parallel()
	built := programs(t)
	options := ringOptions{
		name: "crash", seed: 2, rate: 100, services: built, times: calm,
	}
	inRing(t, options, func(ctx context.Context, r *ring) error {
		for range 2 {
			if _, err := r.failover(ctx, "SIGKILL, the child", (*child.Slot).Crash); err != nil {
				return err
			}
			for _, p := range r.producers {
				require.NotContains(t, strings.Join(p.Worst(), "\n"), "breaking its lease")
			}
		}
		return nil
	})
}

// failover ends the leader and waits for its successor to publish.
func (r *ring) failover(ctx context.Context, name string, end func(*child.Slot) (string, error)) (time.Duration, error) {
	leader, err := r.ready(ctx)
	if err != nil {
		return 0, err
	}
	epoch, at := r.checkpoints.Epoch(), time.Now()
	instance, err := end(leader.Slot)
	if err != nil {
		return 0, err
	}
	first, err := r.replaced(ctx, epoch)
	if err != nil {
		return 0, err
	}
	r.trace.add("%s, of %s: %s", name, instance, first.Sub(at))
	return first.Sub(at), nil
}

func table(measured map[string][]time.Duration) string {
	var text strings.Builder
	text.WriteString("| what the leader gets | p50 | p99 | max |\n|---|---|---|---|\n")
	for _, lost := range ends {
		p50, p99, longest := ranks(measured[lost.name])
		fmt.Fprintf(&text, "| %s | %s | %s | %s |\n", lost.name, p50, p99, longest)
	}
	return text.String()
}

// ranks returns the nearest ranks; of 30 durations the 99th percentile is the longest.
func ranks(durations []time.Duration) (p50, p99, longest time.Duration) {
	sorted := slices.Sorted(slices.Values(durations))
	rank := func(p int) time.Duration { return sorted[(p*len(sorted)+99)/100-1].Round(10 * time.Millisecond) }
	return rank(50), rank(99), rank(100)
}
