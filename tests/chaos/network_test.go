package chaos

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/retry"
	"github.com/sluice-cdc/sluice/tests/chaos/internal/cable"
	"github.com/sluice-cdc/sluice/tests/chaos/internal/netns"
)

// The leadership's own times keep their defaults, which are made for such networks. A leader that
// makes no progress gives up the lease sooner than by default, so that a round does not take a
// minute.
const (
	stallAfter = 10 * time.Second
	// takeoverAfter is the default of TAKEOVER_AFTER: once it has passed since a leader's last
	// write, another replica may lead, and no message of the first one may arrive any more.
	takeoverAfter = 4 * time.Second
	// flowing is how many events must be visible before the first round: by then every connection
	// is open.
	flowing = 20
)

// asked returns the rounds: CHAOS_NETWORK of them drawn from CHAOS_SEED, with troubles of at most
// CHAOS_LONGEST seconds. CHAOS_TROUBLE instead selects every trouble whose name contains it, once.
// By default there are three fixed ones.
func asked(t *testing.T) (rounds []spell) {
	t.Helper()
	const lasts = 10 * time.Second
	if part := os.Getenv("CHAOS_TROUBLE"); part != "" {
		for _, trouble := range troubles {
			if strings.Contains(trouble.name, part) {
				rounds = append(rounds, spell{trouble: trouble, lasts: lasts})
			}
		}
		require.NotEmpty(t, rounds, "CHAOS_TROUBLE: no trouble has such a name")
		return rounds
	}
	if n := setting(t, "CHAOS_NETWORK", 0); n > 0 {
		return spells(uint64(setting(t, "CHAOS_SEED", 1)), n, time.Duration(setting(t, "CHAOS_LONGEST", 30))*time.Second)
	}
	return []spell{
		named("the leader is cut off from Blob storage", lasts), named("a projector is not answered", lasts),
		named("every network does all three", lasts),
	}
}

// TestG1G2G3G4OfProcessesWhoseNetworkFails gives every service a network of its own and makes the
// network fail, while the processes live. CHAOS_RINGS is the number of pipelines side by side.
func TestG1G2G3G4OfProcessesWhoseNetworkFails(t *testing.T) {
	t.Parallel()
	netns.Require(t)
	drawn, rings, seed := asked(t), setting(t, "CHAOS_RINGS", 3), uint64(setting(t, "CHAOS_SEED", 1))
	built := programs(t)
	seen := &networkReport{troubles: map[string]int{}}
	t.Cleanup(func() { t.Logf("seed %d: %v", seed, seen) })
	t.Run("rings", func(t *testing.T) {
		for n := range min(rings, len(drawn)) {
			name := fmt.Sprintf("network-%d", n+1)
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				options := ringOptions{
					name: name, seed: seed<<8 + uint64(n), rate: 10, services: built,
					apart: true, times: []string{"STALL_AFTER=" + stallAfter.String()}, fenceAfter: takeoverAfter,
				}
				r := inRing(t, options, func(ctx context.Context, r *ring) error {
					if err := r.until(ctx, "events flow", func() bool { return r.rec.Counts().Visible >= flowing }); err != nil {
						return err
					}
					for n := n; n < len(drawn); n += rings {
						if err := r.weather(ctx, drawn[n], seen); err != nil {
							return fmt.Errorf("round %d of seed %d, %s: %w", n+1, seed, drawn[n], err)
						}
					}
					return nil
				})
				seen.judged(r)
			})
		}
	})
}

// weather makes networks fail once, waits until the other services have progressed, and then until
// all have.
func (r *ring) weather(ctx context.Context, s spell, seen *networkReport) error {
	leader, err := r.ready(ctx)
	if err != nil {
		return err
	}
	epoch, began := r.checkpoints.Epoch(), time.Now()
	places := r.struck(s, leader)
	defer func() {
		for _, place := range places {
			place.heal()
		}
	}()
	var names []string
	for _, place := range places {
		place.disturb(s.trouble)
		names = append(names, place.Name)
	}
	r.trace.add("%s (%s, epoch %d)", s, strings.Join(names, " "), epoch)
	if err := retry.Sleep(ctx, time.Second); err != nil {
		return err
	}
	committed := r.rec.Counts().Committed // partly while the network was failing
	switch s.meanwhile {
	case anotherLeads:
		_, err = r.replaced(ctx, epoch)
	case itGoesOn:
		err = r.until(ctx, "the other services make progress", func() bool { return r.rec.Counts().Visible >= committed })
	case nothing:
	}
	if err != nil {
		return err
	}
	wentOn := time.Since(began)
	if err := hold(ctx, s, places, began); err != nil {
		return err
	}
	r.trace.add("the network is good again; the others made progress after %s", wentOn.Round(time.Millisecond))
	healed := time.Now()
	if _, err := r.ready(ctx); err != nil {
		return err
	}
	seen.add(s, wentOn, time.Since(healed))
	r.trace.add("everything has recovered after %s", time.Since(healed).Round(time.Millisecond))
	return nil
}

// hold keeps a trouble up, or lets it come and go, and ends it.
func hold(ctx context.Context, s spell, places []*slot, began time.Time) error {
	for good := true; ; good = !good {
		left := s.lasts - time.Since(began)
		if s.flaps {
			left = min(left, time.Second)
		}
		if err := retry.Sleep(ctx, left); err != nil {
			return err
		}
		over := time.Since(began) >= s.lasts
		for _, place := range places {
			if good || over {
				place.heal()
			} else {
				place.disturb(s.trouble)
			}
		}
		if over {
			return nil
		}
	}
}

// struck returns the places whose network fails.
func (r *ring) struck(s spell, leader *slot) (places []*slot) {
	switch s.of {
	case theLeader:
		return []*slot{leader}
	case theStandby:
		for _, p := range r.producers {
			if p != leader {
				places = append(places, p)
			}
		}
		return places
	case oneProjector:
		return r.projectors[s.which : s.which+1]
	case allProducers:
		return r.producers
	case allProjectors:
		return r.projectors
	case allProcesses:
	}
	return r.slots()
}

// networkReport sums up all rings.
type networkReport struct {
	mu sync.Mutex // guards everything below

	report   report
	rounds   int
	troubles map[string]int
	wentOn   time.Duration // the longest
	wentOnOf string
	whole    []time.Duration // from the end of the trouble until everything has recovered
	packets  cable.Counts
}

func (r *networkReport) add(s spell, wentOn, whole time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rounds++
	r.troubles[s.name]++
	r.whole = append(r.whole, whole)
	if s.meanwhile != nothing && wentOn > r.wentOn {
		r.wentOn, r.wentOnOf = wentOn, s.name
	}
}

func (r *networkReport) judged(of *ring) {
	r.report.judged(of)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range of.slots() {
		for _, d := range cable.Both() {
			c := s.cable.Count(d)
			r.packets.Passed += c.Passed
			r.packets.Late += c.Late
			r.packets.Lost += c.Lost
			r.packets.Cut += c.Cut
		}
	}
}

func (r *networkReport) String() string {
	counts := r.report.counts()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.rounds == 0 {
		return "no round finished"
	}
	p50, _, longest := ranks(r.whole)
	var text strings.Builder
	fmt.Fprintf(&text, "%d rounds: %s\npackets: %d passed, %d were late, %d were lost and %d cut off\n"+
		"the others made progress within %s (%s); after the trouble everything recovered within %s (p50), %s (longest)\n",
		r.rounds, counts, r.packets.Passed, r.packets.Late, r.packets.Lost, r.packets.Cut,
		r.wentOn.Round(time.Millisecond), r.wentOnOf, p50, longest)
	for _, name := range slices.Sorted(maps.Keys(r.troubles)) {
		fmt.Fprintf(&text, "%-50s %4d\n", name, r.troubles[name])
	}
	return text.String()
}
