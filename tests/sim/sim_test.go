package sim

import (
	"embed"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/virtualtime"
	"github.com/sluice-cdc/sluice/tests/internal/checker"
	"github.com/sluice-cdc/sluice/tests/internal/leasecheck"
	"github.com/sluice-cdc/sluice/tests/sim/internal/plan"
)

var (
	oneSeed = flag.Int64("seed", -1, "simulate this seed alone, and say everything that happens")
	onePlan = flag.String("plan", "", "simulate the plan in this file alone, and say everything that happens; "+
		"the path may be one from the repository's root")
	writeTo      = flag.String("write", "", "write the plan of the one seed, or the one plan, into this file instead of simulating it; the path is one from tests/sim")
	from         = flag.Uint64("from", 0, "the first of the seeds that SIM_SEEDS counts")
	draws        = flag.String("draws", "", "draw "+plan.WithSnapshot+" or "+plan.WithBuild+" into the run of every seed")
	tries        = flag.Int("tries", 1, "simulate the one seed or plan up to so many times, until it fails")
	programsOnly = flag.Bool("programs", false, "with SIM_SEEDS: simulate only those seeds whose projection is a program of its own")
	breaks       = flag.String("breaks", "", "with -tries: go on until this promise is broken")
	verdict      = flag.String("verdict", "", "with -tries: write which promises were broken into this file, as a JSON list")
)

// seeds is how many seeds are simulated by default; SIM_SEEDS overrides it.
const seeds = 20

// enough is from how many seeds on it is required that the simulation meets what it is for.
const enough = 60

// decided is how long the judgement of the lease may take, in real time: what one blob explains
// takes milliseconds.
const decided = 20 * time.Second

func TestSimulation(t *testing.T) {
	virtualtime.Require(t) // before what the seeds met is judged
	loaded()               // outside of the bubbles: every run shares it
	switch {
	case *onePlan != "":
		p, err := readPlan(*onePlan)
		require.NoError(t, err)
		again(t, simulation{plan: p, again: "-plan " + *onePlan, verbose: true})
		return
	case *oneSeed >= 0:
		again(t, ofSeed(uint64(*oneSeed), true))
		return
	}
	n := seeds
	if text := os.Getenv("SIM_SEEDS"); text != "" {
		var err error
		n, err = strconv.Atoi(text)
		require.NoError(t, err, "SIM_SEEDS")
	}
	entries, err := kept.ReadDir(keptPlans)
	require.NoError(t, err)
	for _, entry := range entries {
		path := keptPlans + "/" + entry.Name()
		t.Run("plan/"+strings.TrimSuffix(entry.Name(), ".json"), func(t *testing.T) {
			t.Parallel()
			text, err := kept.ReadFile(path)
			require.NoError(t, err)
			p, err := plan.Decode(text)
			require.NoError(t, err)
			simulate(t, simulation{plan: p, again: "-plan tests/sim/" + path})
		})
	}
	seen := &coverage{}
	t.Cleanup(func() {
		t.Logf("in %d seeds: %v", n, seen)
		// A FailNow so late would end the test without a word.
		if missed := seen.missed(n); n >= enough && *draws == "" && !*programsOnly && !t.Failed() && len(missed) > 0 {
			t.Errorf("the simulation does not reach what it is for: in %d seeds no %s", n, strings.Join(missed, ", no "))
		}
	})
	for seed := *from; seed < *from+uint64(n); seed++ {
		if *programsOnly && !plan.Draw(seed).Settings.Program {
			continue
		}
		t.Run(fmt.Sprint("seed/", seed), func(t *testing.T) {
			t.Parallel()
			s := ofSeed(seed, false)
			s.seen = seen
			simulate(t, s)
		})
	}
}

// keptPlans is where the plans are that broke a promise once, or were made to break one where a
// certain bug is: they are simulated always.
const keptPlans = "testdata/plans"

// kept are those plans, in the program, so that the go command knows another clone's result.
//
//go:embed testdata/plans/*.json
var kept embed.FS

// readPlan reads a plan from a path, which may be one from the repository's root.
func readPlan(path string) (plan.Plan, error) {
	if _, err := os.Stat(path); err != nil && !filepath.IsAbs(path) {
		path = filepath.Join("..", "..", path)
	}
	return plan.Read(path)
}

// simulation is a plan that is to be simulated.
type simulation struct {
	plan    plan.Plan
	again   string    // the arguments with which it is simulated again
	verbose bool      // everything that happens, also where it does not fail
	seen    *coverage // nil: not counted
	broken  *promises // nil: not collected
}

func ofSeed(seed uint64, verbose bool) simulation {
	again := fmt.Sprintf("-seed %d", seed)
	if *draws != "" {
		again += " -draws " + *draws
	}
	return simulation{plan: plan.DrawWith(seed, *draws), again: again, verbose: verbose}
}

// again simulates a plan as many times as was asked for, until it fails in the way that was asked
// for.
func again(t *testing.T, s simulation) {
	if *writeTo != "" {
		require.NoError(t, os.WriteFile(*writeTo, s.plan.Encode(), 0o600))
		return
	}
	if *tries == 1 && *breaks == "" {
		simulate(t, s)
		return
	}
	s.verbose = false
	broken, found := &promises{}, &atomic.Bool{}
	t.Run("try", func(t *testing.T) {
		for n := range *tries {
			t.Run(fmt.Sprint(n+1), func(t *testing.T) {
				t.Parallel()
				if found.Load() {
					t.Skip("it has failed before")
				}
				s := s
				s.broken = &promises{}
				defer func() {
					if t.Failed() {
						if broken.join(s.broken); *breaks == "" || s.broken.has(*breaks) {
							found.Store(true)
						}
					}
				}()
				simulate(t, s)
			})
		}
	})
	if *verdict != "" && t.Failed() {
		require.NoError(t, broken.write(*verdict))
	}
}

func simulate(t *testing.T, s simulation) {
	command := "go test ./tests/sim -run 'TestSimulation$' " + s.again
	broken := s.broken
	if broken == nil {
		broken = &promises{}
	}
	defer func() {
		if t.Failed() {
			if broken.kind() == otherwise {
				t.Logf("promises broken: %s", otherwise)
			}
			t.Logf("again: %s", command)
			shrink(t, s, broken)
		}
	}()
	var leases []*leasecheck.Recorder
	virtualtime.Test(t, func(t *testing.T) {
		inWorld(t, s.plan, func(w *world) {
			w.broken, w.verbose, leases = broken, s.verbose, w.leases
			w.whole(func() {
				w.trouble(w.Context())
				w.heal()
			})
			if s.seen != nil {
				s.seen.addRun(w)
			}
		})
	})
	// Outside of the bubble too, where time passes while it computes.
	for _, blob := range leases {
		if err := leasecheck.Check(blob.History(), decided); err != nil {
			err = fmt.Errorf("%w: %w", checker.ErrLease, err)
			broken.add(err)
			t.Logf("promises broken: %s", broken)
			t.Error(err)
		}
	}
}
