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

	"github.com/sluice-cdc/sluice/tests/internal/checker"
)

func TestMain(m *testing.M) {
	// Rings wait far more than they work: as many as are asked for run at once, whatever the number of processors.
	if err := flag.Set("test.parallel", "64"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(tests{m})
}

// quick is how the leadership's times are set here: as short as leaves room for a busy machine. The lease itself cannot be
// shorter than Azure allows.
var quick = []string{
	"LEASE_DURATION=15s", "HEARTBEAT_INTERVAL=300ms", "STANDBY_POLL=300ms", "FENCE_AFTER=1500ms", "TAKEOVER_AFTER=3s",
}

// calm is how they are set where the leader is not the matter: whatever the machine has to do, it goes on leading.
var calm = []string{"LEASE_DURATION=60s", "FENCE_AFTER=30s", "TAKEOVER_AFTER=55s"}

// setting is a number from the environment.
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

// TestG1G2G3G4OfProcessesThatAreKilledAndStopped takes processes away at the steps of the path. CHAOS_ROUNDS is how many
// times, CHAOS_RINGS in how many pipelines side by side, CHAOS_STOP for how many seconds a process is stopped.
func TestG1G2G3G4OfProcessesThatAreKilledAndStopped(t *testing.T) {
	t.Parallel()
	all := strikes()
	rounds, rings := setting(t, "CHAOS_ROUNDS", 8), setting(t, "CHAOS_RINGS", 4)
	stopped := time.Duration(setting(t, "CHAOS_STOP", 5)) * time.Second
	producer, projector, azuriteAddr := programs(t)

	due := make(chan strike, rounds)
	for n := range rounds {
		// A step of 7 is coprime with the number of strikes: a few rounds meet many roles, and all of them come in the end.
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
				options := ringOptions{name: name, seed: uint64(n), rate: 30, producer: producer, projector: projector, blobURL: azuriteAddr, times: quick}
				r, run := inRing(t, options, func(ctx context.Context, r *ring) error {
					for s := range due {
						outcome, err := r.round(ctx, s, stopped)
						if err != nil {
							return err
						}
						seen.add(outcome)
					}
					return nil
				})
				seen.judged(r)
				for _, violation := range checker.Judge(run) {
					t.Error(violation)
				}
			})
		}
	})
	require.Equal(t, rounds, seen.rounds())
}

// report counts over all rings.
type report struct {
	mu      sync.Mutex // guards everything below
	strikes []struck

	events, published, recognised, repeated, stale, terms int64
}

func (r *report) add(s struck) {
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
	r.recognised += counts.Duplicates
	r.repeated += counts.Repeated
	r.stale += counts.Stale
	r.terms += of.checkpoints.Epoch()
}

func (r *report) counts() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counted()
}

// counted is for whoever has locked r.
func (r *report) counted() string {
	return fmt.Sprintf("%d events, %d messages, %d repeats that the broker recognised, %d that it had forgotten, %d messages of a stale leader, %d terms",
		r.events, r.published, r.recognised, r.repeated, r.stale, r.terms)
}

func (r *report) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	type cell struct{ kills, stops int }
	counted := map[string]*cell{}
	for _, s := range r.strikes {
		c := counted[s.name]
		if c == nil {
			c = &cell{}
			counted[s.name] = c
		}
		if s.signal == syscall.SIGKILL {
			c.kills++
		} else {
			c.stops++
		}
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%d rounds: %s\n", len(r.strikes), r.counted())
	fmt.Fprintf(&text, "%-36s %8s %8s\n", "step", "SIGKILL", "SIGSTOP")
	for _, s := range steps {
		if c := counted[s.name]; c != nil {
			fmt.Fprintf(&text, "%-36s %8d %8d\n", s.name, c.kills, c.stops)
		}
	}
	return text.String()
}
