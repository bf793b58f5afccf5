package scaling

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/tests/internal/bicep"
)

var update = flag.Bool("update", false, "write the picture and the table into infra")

const (
	infra  = "../../../infra/"
	begin  = "<!-- scaling: written by go test ./tests/deploy/scaling -update -->\n"
	finish = "<!-- end of scaling -->\n"
)

// keda is its own default of messages for each replica, deployed is ours.
const keda = 5

// The documents show what the simulation says today.
func TestTheDocumentsShowTheSimulation(t *testing.T) {
	rules := []Rule{WithTarget(keda), deployed(t)}
	picture := Picture(rules, Typical)
	table := Table([]Rule{WithTarget(keda), WithTarget(500), deployed(t), WithTarget(5000)}, Typical)
	readme, err := os.ReadFile(infra + "README.md")
	require.NoError(t, err)
	before, rest, ok := strings.Cut(string(readme), begin)
	require.True(t, ok)
	told, after, ok := strings.Cut(rest, finish)
	require.True(t, ok)
	if *update {
		require.NoError(t, os.WriteFile(infra+"scaling.svg", []byte(picture), 0o644))
		require.NoError(t, os.WriteFile(infra+"README.md", []byte(before+begin+table+finish+after), 0o644))
		return
	}
	shown, err := os.ReadFile(infra + "scaling.svg")
	require.NoError(t, err)
	require.Equal(t, string(shown), picture)
	require.Equal(t, told, table)
}

// deployed is the rule of the template, and must be what the scenarios are run with.
func deployed(t *testing.T) Rule {
	t.Helper()
	f, err := bicep.ReadFile(infra + "app/projector.bicep")
	require.NoError(t, err)
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
	app, _ := f.Find("resource", "projector")
	rule := WithTarget(param("messagesPerReplica"))
	app.Value.Walk(func(path []string, v bicep.Value) {
		switch strings.Join(path, ".") {
		case "properties.template.scale.pollingInterval":
			require.Equal(t, rule.Polling, time.Duration(number(v.Text))*time.Second)
		case "properties.template.scale.cooldownPeriod":
			require.Equal(t, rule.Cooldown, time.Duration(number(v.Text))*time.Second)
		}
	})
	for sku, least := range map[string]string{"Standard": "1", "Premium": "0"} {
		v, err := f.Eval("leastReplicas", map[string]any{"serviceBusSku": sku})
		require.NoError(t, err)
		require.Equal(t, least, v, "%s: a throttled namespace counts 0, and from 0 replicas nobody would come back", sku)
	}
	v, err := f.Eval("leastReplicas", map[string]any{"serviceBusSku": "Standard", "minReplicas": strconv.Itoa(rule.Min)})
	require.NoError(t, err)
	require.Equal(t, strconv.Itoa(rule.Min), v, "what is set counts")
	require.Equal(t, rule.Max, param("maxReplicas"))
	require.Equal(t, Typical.Sessions, param("maxSessions"))
	return rule
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

// What the default is argued from.
func TestTheDeployedTarget(t *testing.T) {
	sums := func(rule Rule, name string) Summary {
		s := scenario(t, name)
		return Summarize(Run(rule, Typical, s.Load, s.Seconds))
	}
	ours, small, large := deployed(t), WithTarget(keda), WithTarget(5000)
	for _, name := range []string{"burst", "wave"} {
		require.Equal(t, sums(small, name).EmptySecond, sums(ours, name).EmptySecond, "%s: no slower than with the smallest target", name)
		require.Less(t, sums(ours, name).EmptySecond, sums(large, name).EmptySecond, "%s: a larger one is", name)
	}
	require.Equal(t, sums(small, "hot aggregate").EmptySecond, sums(ours, "hot aggregate").EmptySecond,
		"more replicas do nothing for one aggregate")
	require.Less(t, sums(ours, "hot aggregate").ReplicaHours, sums(small, "hot aggregate").ReplicaHours/2)
	require.Equal(t, 1, sums(ours, "trickle").Peak)
}

// The parts of the algorithm, one by one.
func TestTheFormula(t *testing.T) {
	still := Replica{Start: time.Hour, Sessions: 1, PerSecond: turns, PerSessionASecond: turns} // never works
	constant := func(messages int) Load {
		return func(second int) map[int]int {
			if second == 0 {
				return map[int]int{0: messages}
			}
			return nil
		}
	}
	replicas := func(run []Second, second int) int { return run[second].Replicas }

	rule := WithTarget(100)
	rule.Max = 50
	run := Run(rule, still, constant(1001), 120)
	require.Equal(t, 1, replicas(run, 0), "activation")
	require.Equal(t, 5, replicas(run, 15), "by 4 at most")
	require.Equal(t, 10, replicas(run, 30), "to twice as many at most")
	require.Equal(t, 11, replicas(run, 45), "ceil(1001/100)")
	rule.Max = 7
	require.Equal(t, 7, replicas(Run(rule, still, constant(1001), 120), 119), "max")
	rule.Min = 2
	require.Equal(t, 2, replicas(Run(rule, still, constant(0), 120), 119), "min")

	rule = WithTarget(100)
	quick := Replica{Sessions: 8, PerSecond: 4000, PerSessionASecond: 4000}
	run = Run(rule, quick, constant(100), 700)
	require.Equal(t, 0, run[0].Waiting)
	require.Equal(t, 1, replicas(run, 299), "the last one stays for the cooldown")
	require.Equal(t, 0, replicas(run, 300))
}

// A session has one holder: a second replica finds nothing to do.
func TestOneAggregateIsOneReplicasWork(t *testing.T) {
	s := scenario(t, "hot aggregate")
	for _, second := range Run(WithTarget(1), Typical, s.Load, s.Seconds) {
		require.LessOrEqual(t, second.Useful, 1)
	}
}

// credits are what Standard gives a namespace in a second, and what things cost: messages, filters and administration by
// Azure's word, the rest by assumption.
const (
	creditsASecond = 1000
	throughTopic   = 3 // send, filter, receive
	throughQueue   = 2
	ofAccept       = 1
	ofLook         = 10 // the scaler's, a request of administration
)

// The table of capacity is this sum, with the services' own settings.
func TestCapacityCountsWhatIsNoMessage(t *testing.T) {
	rule := deployed(t)
	workers := float64(rule.Max * Typical.Sessions)
	accepts, renewals, looks := workers/60, workers/30, ofLook/rule.Polling.Seconds()
	left := creditsASecond - accepts - renewals - looks
	readme, err := os.ReadFile(infra + "README.md")
	require.NoError(t, err)
	for _, row := range []string{
		fmt.Sprintf("| an accept that found none within `ACCEPT_TIMEOUT` (60 s) | 1 | %.1f |", accepts),
		fmt.Sprintf("| a renewal of a session's lock, twice in its 60 s | 1 | %.1f |", renewals),
		fmt.Sprintf("| the scaler's look, every %.0f s | %d | %.1f |", rule.Polling.Seconds(), ofLook, looks),
		fmt.Sprintf("about **%d messages a second** through a topic", int(left/throughTopic)),
		fmt.Sprintf("%d when each message is a session", int(left/(throughTopic+ofAccept))),
		fmt.Sprintf("%d through a queue", int(left/throughQueue)),
	} {
		require.True(t, strings.Contains(string(readme), row), "infra/README.md does not say %q", row)
	}
	settings, err := os.ReadFile("../../../projector/config.go")
	require.NoError(t, err)
	require.True(t, strings.Contains(string(settings), "`envconfig:\"ACCEPT_TIMEOUT\" default:\"60s\"`"), "the table reckons with 60 s")
}
