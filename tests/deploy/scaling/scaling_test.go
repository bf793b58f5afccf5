package scaling

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/tests/internal/bicep"
	"github.com/sluice-cdc/sluice/tests/internal/tree"
)

var update = flag.Bool("update", false, "write the picture and the table into infra")

const (
	infra  = "../../../infra/"
	begin  = "<!-- scaling: written by SCALING=yes go test ./tests/deploy/scaling -update -->\n"
	finish = "<!-- end of scaling -->\n"
)

// keda is KEDA's default of messages for each replica.
const keda = 5

// TestMain runs the tests only if SCALING=yes, as the nightly workflow does: they argue for
// defaults, and guard no promise.
func TestMain(m *testing.M) {
	if os.Getenv("SCALING") != "yes" {
		fmt.Println("skipped: SCALING=yes runs the simulation of scaling")
		return
	}
	os.Exit(m.Run())
}

// The documents show the current results of the simulation.
func TestTheDocumentsShowTheSimulation(t *testing.T) {
	tree.Depend()
	ours := deployed(t)
	picture := Picture(ours, Typical)
	table := Table([]int{keda, ours, 2000, 5000}, Typical)
	readme, err := os.ReadFile(infra + "README.md")
	require.NoError(t, err)
	before, rest, ok := strings.Cut(string(readme), begin)
	require.True(t, ok)
	shown, after, ok := strings.Cut(rest, finish)
	require.True(t, ok)
	if *update {
		require.NoError(t, os.WriteFile(infra+"scaling.svg", []byte(picture), 0o644))
		require.NoError(t, os.WriteFile(infra+"README.md", []byte(before+begin+table+finish+after), 0o644))
		return
	}
	drawn, err := os.ReadFile(infra + "scaling.svg")
	require.NoError(t, err)
	require.Equal(t, string(drawn), picture)
	require.Equal(t, shown, table)
}

// deployed returns the template's number of messages for each replica; the rest of its rule must be
// the one that the scenarios use.
func deployed(t *testing.T) (messages int) {
	tree.Depend()
	t.Helper()
	f, err := bicep.ReadFile(infra + "app/projector.bicep")
	require.NoError(t, err)
	each, err := bicep.ReadFile(infra + "app/projection.bicep")
	require.NoError(t, err)
	app, found := each.Find("resource", "projector")
	require.True(t, found)
	scale := app.Value.At("properties", "template", "scale")
	number := func(text string) int {
		n, err := strconv.Atoi(text)
		require.NoError(t, err)
		return n
	}
	param := func(name string) int {
		p, ok := f.Find("param", name)
		require.True(t, ok, name)
		return number(p.Value.Text)
	}
	messages = param("messagesPerReplica")
	for _, tier := range Tiers {
		rule := tier.WithTarget(messages)
		require.Equal(t, rule.Polling, time.Duration(number(scale.At("pollingInterval").Text))*time.Second)
		require.Equal(t, rule.Cooldown, time.Duration(number(scale.At("cooldownPeriod").Text))*time.Second)
		require.Equal(t, rule.Min, param("minReplicas"), "%s: a throttled namespace counts 0, and from 0 replicas none would come back", tier.Name)
		require.Equal(t, rule.Max, param("maxReplicas"))
	}
	require.Equal(t, Typical.Sessions, param("maxSessions"))
	return messages
}

func scenario(t *testing.T, name string) Scenario {
	t.Helper()
	for _, s := range Scenarios {
		if s.Name == name {
			return s
		}
	}
	require.Fail(t, "no such scenario", name)
	return Scenario{}
}

// The default is justified by this: with it, nothing is a tenth slower than with the smallest
// target in either tier, and with ten times as much something is.
func TestTheDeployedTarget(t *testing.T) {
	ours, slower := deployed(t), false
	for _, tier := range Tiers {
		sums := func(messages int, s Scenario) Summary { return sums(tier, messages, Typical, s) }
		for _, s := range Scenarios {
			smallest := sums(keda, s)
			require.LessOrEqual(t, sums(ours, s).CaughtUp, smallest.CaughtUp*11/10, "%s, %s", tier.Name, s.Name)
			require.Positive(t, sums(ours, s).ReplicaHours)
			require.NotEqual(t, -1, smallest.CaughtUp, "%s, %s: it is caught up at all", tier.Name, s.Name)
			slower = slower || sums(10*ours, s).CaughtUp > smallest.CaughtUp*11/10
		}
		require.Equal(t, 1, sums(ours, scenario(t, "trickle")).Peak)
	}
	require.True(t, slower)
}

// Standard has a thousand credits a second: messages that cost three each cannot be finished
// earlier, and while the namespace is throttled its count is 0 and no replica is started.
func TestStandardIsLimitedByItsCredits(t *testing.T) {
	standard := Tiers[0]
	for name, changes := range map[string]int{"burst": 60000, "wave": 270000, "hot aggregate": 180000} {
		s := scenario(t, name)
		run := Run(standard, standard.WithTarget(keda), Typical, s.Load, s.Seconds)
		sum := Summarize(run)
		require.GreaterOrEqual(t, sum.CaughtUp-60, changes*throughTopic/creditsASecond, name)
		require.Greater(t, sum.Throttled, 100, name)
		for i, second := range run[1:] {
			if second.Replicas > run[i].Replicas {
				require.False(t, run[i].Throttled, "%s: a replica was started at %d s", name, i)
			}
		}
	}
	quiet := scenario(t, "trickle")
	require.Zero(t, Summarize(Run(standard, standard.WithTarget(keda), Typical, quiet.Load, quiet.Seconds)).Throttled)
}

// The parts of the algorithm, one by one.
func TestTheScalingFormula(t *testing.T) {
	free := Tier{}
	still := Replica{Start: time.Hour, Sessions: 1, Processor: time.Second, PerEvent: time.Second, PerBatch: time.Second} // never works
	constant := func(messages int) Load {
		return func(second int) map[int]int {
			if second == 0 {
				return map[int]int{0: messages}
			}
			return nil
		}
	}
	replicas := func(run []Second, second int) int { return run[second].Replicas }

	rule := free.WithTarget(100)
	rule.Min = 0
	rule.Max = 50
	run := Run(free, rule, still, constant(1001), 120)
	require.Equal(t, 0, replicas(run, 14), "what arrives after a poll is seen by the next one")
	require.Equal(t, 1, replicas(run, 15), "activation")
	require.Equal(t, 5, replicas(run, 30), "by 4 at most")
	require.Equal(t, 10, replicas(run, 45), "to twice as many at most")
	require.Equal(t, 11, replicas(run, 60), "ceil(1001/100)")
	rule.Max = 7
	require.Equal(t, 7, replicas(Run(free, rule, still, constant(1001), 120), 119), "max")
	rule.Min = 2
	require.Equal(t, 2, replicas(Run(free, rule, still, constant(0), 120), 119), "min")

	rule = free.WithTarget(100)
	rule.Min = 0
	quick := Replica{Sessions: 8, Processor: time.Second, PerEvent: time.Microsecond, Batch: 1000, PerBatch: time.Millisecond}
	run = Run(free, rule, quick, constant(100), 700)
	require.Equal(t, 100, run[14].Waiting)
	require.Equal(t, 0, run[15].Waiting)
	require.Equal(t, 1, replicas(run, 314), "the last one stays for the cooldown")
	require.Equal(t, 0, replicas(run, 315))
}

// A session has one holder: a second replica has nothing to do.
func TestOneAggregateOccupiesOneReplica(t *testing.T) {
	s := scenario(t, "hot aggregate")
	for _, second := range Run(Tiers[1], Tiers[1].WithTarget(1), Typical, s.Load, s.Seconds) {
		require.LessOrEqual(t, second.Useful, 1)
	}
}

// The credits that Standard gives a namespace in a second, and the costs: those of messages,
// filters and administration are documented by Azure, the others are assumptions.
const (
	creditsASecond = 1000
	throughTopic   = 3 // send, filter, receive
	throughQueue   = 2
	ofAccept       = 1
	ofLook         = 10 // the scaler's poll, a request of administration
)

// The table of capacity is computed from these numbers and the services' own settings.
func TestCapacityIncludesRequestsThatAreNotMessages(t *testing.T) {
	rule := Tiers[0].WithTarget(deployed(t))
	workers := float64(rule.Max * Typical.Sessions)
	accepts, renewals, looks := workers/60, workers/20, ofLook/rule.Polling.Seconds()
	left := creditsASecond - accepts - renewals - looks
	readme, err := os.ReadFile(infra + "README.md")
	require.NoError(t, err)
	for _, row := range []string{
		fmt.Sprintf("| an accept that found none within `ACCEPT_TIMEOUT` (60 s) | 1 | %.1f |", accepts),
		fmt.Sprintf("| a renewal of a session's lock, every 20 s | 1 | %.0f |", renewals),
		fmt.Sprintf("| the scaler's look, every %.0f s | %d | %.1f |", rule.Polling.Seconds(), ofLook, looks),
		fmt.Sprintf("about **%d messages a second** through a topic", int(left/throughTopic)),
		fmt.Sprintf("%d when each message is a session", int(left/(throughTopic+ofAccept))),
		fmt.Sprintf("%d through a queue", int(left/throughQueue)),
	} {
		require.True(t, strings.Contains(string(readme), row), "infra/README.md does not contain %q", row)
	}
	settings, err := os.ReadFile("../../../projector/config.go")
	require.NoError(t, err)
	require.True(t, strings.Contains(string(settings), "`envconfig:\"ACCEPT_TIMEOUT\" default:\"60s\"`"), "the table assumes 60 s")
}

// burns reports whether the alert slo-fast would fire in some second of a run: the projector is
// sampled every 15 s while it works, and in more than 1.44 % of the samples, of the whole run and
// of the last five minutes, the newest change was applied later than after 5 s.
func burns(run []Second) bool {
	type look struct {
		second int
		late   bool
	}
	var looks []look
	oldest := func(now int) int { // the age of the change that is applied next, in order
		waiting := run[now].Waiting
		for age := 0; age <= now; age++ {
			if waiting <= 0 {
				return age
			}
			waiting -= run[now-age].Made
		}
		return now
	}
	share := func(looks []look) (missed float64) {
		for _, l := range looks {
			if l.late {
				missed++
			}
		}
		return missed / float64(max(len(looks), 1))
	}
	lag, useful := 0, false
	for now := range run {
		if run[now].Useful > 0 && now > 0 {
			lag, useful = oldest(now-1), true // of the changes that it applied in this second
		}
		if now%15 != 14 {
			continue
		}
		if useful {
			looks = append(looks, look{now, lag > 5})
		}
		useful = false
		recent := slices.DeleteFunc(slices.Clone(looks), func(l look) bool { return l.second <= now-300 })
		if len(looks) >= 20 && min(share(looks), share(recent)) > 0.0144 {
			return true
		}
	}
	return false
}

// With default settings a load within the tier's capacity fires no SLO alert. The other loads of
// the table exceed a tier or a session: changes are late then, and the alert is right.
func TestALoadWithinTheTierFiresNoSLOAlert(t *testing.T) {
	for _, tier := range Tiers {
		for _, name := range []string{"plateau", "trickle"} {
			s := scenario(t, name)
			require.False(t, burns(Run(tier, tier.WithTarget(deployed(t)), Typical, s.Load, s.Seconds)), "%s, %s", tier.Name, name)
		}
	}
	without := Tiers[1].WithTarget(deployed(t))
	without.Min = 0
	s := scenario(t, "trickle")
	require.True(t, burns(Run(Tiers[1], without, Typical, s.Load, s.Seconds)), "without a replica that waits, a start makes changes late")
}
