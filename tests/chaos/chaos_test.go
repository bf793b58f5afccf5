package chaos

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if addr := os.Getenv(envProgram); addr != "" {
		panic(serveProgram(addr))
	}
	// Rings wait far more than they compute: all that are requested run at once, whatever the
	// number of processors.
	if err := flag.Set("test.parallel", "64"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(tests{m})
}

// quick are the leadership's times in these tests: as short as a busy machine allows. Azure's
// minimum applies to the lease itself.
var quick = []string{
	"LEASE_DURATION=15s", "HEARTBEAT_INTERVAL=300ms", "STANDBY_POLL=300ms", "FENCE_AFTER=1500ms", "TAKEOVER_AFTER=3s",
}

// calm are the leadership's times of tests that are not about failover: the leader keeps its lease
// however busy the machine is.
var calm = []string{"LEASE_DURATION=60s", "FENCE_AFTER=30s", "TAKEOVER_AFTER=55s"}

// setting returns a number from the environment, or otherwise if the variable is not set.
func setting(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	require.NoError(t, err, name)
	return n
}

// TestG1G2G3G4OfProcessesThatAreKilledAndStopped kills and stops processes at each step of the
// path. CHAOS_ROUNDS is the number of rounds, CHAOS_RINGS the number of pipelines side by side, and
// CHAOS_STOP how many seconds a process stays stopped.
func TestG1G2G3G4OfProcessesThatAreKilledAndStopped(t *testing.T) {
	t.Parallel()
	all := strikes()
	rounds, rings := setting(t, "CHAOS_ROUNDS", 8), setting(t, "CHAOS_RINGS", 4)
	stopped := time.Duration(setting(t, "CHAOS_STOP", 5)) * time.Second
	built := programs(t)

	due := make(chan strike, rounds)
	for n := range rounds {
		// A stride of 7 is coprime with the number of strikes: a few rounds already meet many
		// roles, and enough rounds meet all strikes.
		due <- all[n*7%len(all)]
	}
	close(due)
	seen := &report{}
	t.Cleanup(func() { t.Logf("%v", seen) })
	t.Run("rings", func(t *testing.T) {
		for n := range min(rings, rounds) {
			name := fmt.Sprintf("ring-%d", n+1)
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				options := ringOptions{name: name, seed: uint64(n), rate: 30, services: built, times: quick, inMongo: (n+1)/2%2 == 1}
				r := inRing(t, options, func(ctx context.Context, r *ring) error {
					for s := range due {
						if err := r.round(ctx, s, stopped); err != nil {
							return err
						}
						seen.add(s)
					}
					return nil
				})
				seen.judged(r)
			})
		}
	})
	require.Equal(t, rounds, seen.rounds())
}

// report sums up all rings.
type report struct {
	mu      sync.Mutex // guards everything below
	strikes []strike

	events, published, packs, recognised, repeated, stale, terms int64
}

func (r *report) add(s strike) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.strikes = append(r.strikes, s)
}

func (r *report) rounds() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.strikes)
}

func (r *report) judged(of *ring) {
	counts := of.rec.Counts()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events += counts.Committed
	r.published += counts.Published
	r.packs += of.packs.Load()
	r.recognised += counts.Duplicates
	r.repeated += counts.Repeated
	r.stale += counts.Stale
	epochs := map[int64]bool{}
	for _, w := range of.checkpoints.All() {
		epochs[w.Epoch] = true
	}
	r.terms += int64(len(epochs))
}

func (r *report) counts() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counted()
}

// counted requires that the caller holds mu.
func (r *report) counted() string {
	return fmt.Sprintf("%d events, %d published, %d packs, %d repeats that the broker recognised, %d that it had forgotten, %d messages of a stale leader, %d terms",
		r.events, r.published, r.packs, r.recognised, r.repeated, r.stale, r.terms)
}

func (r *report) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	kills, stops := map[string]int{}, map[string]int{}
	for _, s := range r.strikes {
		if s.signal == syscall.SIGKILL {
			kills[s.name]++
		} else {
			stops[s.name]++
		}
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%d rounds: %s\n", len(r.strikes), r.counted())
	fmt.Fprintf(&text, "%-36s %8s %8s\n", "step", "SIGKILL", "SIGSTOP")
	for _, s := range steps {
		if kills[s.name]+stops[s.name] > 0 {
			fmt.Fprintf(&text, "%-36s %8d %8d\n", s.name, kills[s.name], stops[s.name])
		}
	}
	return text.String()
}
