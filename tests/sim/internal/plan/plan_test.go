package plan_test

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/tests/sim/internal/plan"
)

func TestASeedDrawsItsPlanAgain(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		require.Equal(t, plan.Draw(seed), plan.Draw(seed))
	}
	require.NotEqual(t, plan.Draw(1).Steps, plan.Draw(2).Steps)
}

// What is drawn can be written, read again and printed.
func TestPlansAreKeptInFiles(t *testing.T) {
	t.Parallel()
	kinds := map[plan.Kind]bool{}
	for seed := range uint64(100) {
		p := plan.Draw(seed)
		again, err := plan.Decode(p.Encode())
		require.NoError(t, err, "seed %d", seed)
		require.Equal(t, string(p.Encode()), string(again.Encode()))
		require.Equal(t, p.Steps, again.Steps)
		require.Equal(t, p.Bursts, again.Bursts)
		require.True(t, json.Valid(p.Encode()))
		for _, s := range p.Steps {
			kinds[s.Kind] = true
			require.NotEmpty(t, s.String(), "it has no words")
			require.Contains(t, p.Narrative(), s.String())
		}
		require.True(t, slices.IsSortedFunc(p.Steps, func(a, b plan.Step) int { return int(a.At.Duration - b.At.Duration) }))
	}
	require.Len(t, kinds, 59, "every fault comes")
}

func TestImpossiblePlansAreRefused(t *testing.T) {
	t.Parallel()
	whole := string(plan.Draw(3).Encode())
	require.Contains(t, whole, `["events/hot-0 Kind`)
	for name, test := range map[string]struct{ from, to, want string }{
		"no JSON":         {`"steps"`, `steps`, "invalid character"},
		"unknown field":   {`"at"`, `"when"`, `unknown field "when"`},
		"unknown fault":   {`"kind":"`, `"kind":"no-`, "there is no such fault"},
		"unknown replica": {`"of":"producer-a"`, `"of":"producer-z"`, `"of" is missing, or is nothing that there is`},
		"no duration":     {`"for":"`, `"for":"x`, "invalid duration"},
		"something else":  {"\n}\n", "\n}\n{}", "something follows the plan"},
		"no projection":   {`"projection":"`, `"projection":"no-`, `expected timeline or ledger`},
		"streams":         {`"streams":2`, `"streams":3`, "3 streams: expected 1 or 2"},
		"no event":        {`["events/hot-0 Kind`, `["events/hot-0 and too many more Kind`, `expected an aggregate and a type`},
		"shared by one":   {`"streams":2`, `"streams":1`, "shared by streams where there are several"},
		"not shared":      {`"shared":true,`, ``, "expected a collection exactly where aggregates are shared"},
		"no collection":   {`"events/hot-`, `"hot-`, "expected a collection exactly where aggregates are shared"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			broken := strings.Replace(whole, test.from, test.to, 1)
			require.NotEqual(t, whole, broken)
			_, err := plan.Decode([]byte(broken))
			require.ErrorContains(t, err, test.want)
		})
	}
}

// needed fails if everything that it needs is there.
type needed struct {
	steps    []plan.Kind
	events   []plan.Event
	garbage  int
	replicas int
	judged   int
}

func (n *needed) fails(p plan.Plan) bool {
	n.judged++
	for _, kind := range n.steps {
		if !p.Has(kind) {
			return false
		}
	}
	var events []plan.Event
	for _, b := range p.Bursts {
		events = append(events, b.Events...)
	}
	at := 0
	for _, e := range events {
		if at < len(n.events) && e.Aggregate == n.events[at].Aggregate && e.Kind == n.events[at].Kind {
			at++
		}
	}
	return at == len(n.events) && len(p.Garbage) >= n.garbage && p.Settings.Producers+p.Settings.Projectors >= n.replicas
}

func TestShrinkLeavesOutWhatThePlanFailsWithout(t *testing.T) {
	t.Parallel()
	p := plan.Draw(3)
	require.True(t, p.Settings.Shared)
	require.Equal(t, 2, p.Settings.Streams)
	n := &needed{replicas: 3}
	n.steps = []plan.Kind{p.Steps[2].Kind, p.Steps[len(p.Steps)-3].Kind}
	n.events = []plan.Event{p.Bursts[3].Events[0], p.Bursts[len(p.Bursts)-2].Events[0]}
	require.True(t, n.fails(p))
	small := plan.Shrink(t.Context(), p, n.fails)
	require.True(t, n.fails(small))
	require.Len(t, small.Steps, 2)
	require.Equal(t, 2, small.Events())
	require.Empty(t, small.Garbage)
	require.Empty(t, small.KilledReplays)
	require.Equal(t, 1, small.Settings.Streams)
	require.Equal(t, 3, small.Settings.Producers+small.Settings.Projectors)
	require.Less(t, n.judged, 250, "it takes too many tries")
	require.Equal(t, plan.Draw(3), p, "it changes the plan that it was given")
	_, err := plan.Decode(small.Encode())
	require.NoError(t, err)
}

// If nothing can be left out, nothing is; and every plan that is tried can be executed: what
// happens to a replica or a stream is left out with it.
func TestShrinkTriesWhatCanBeCarriedOut(t *testing.T) {
	t.Parallel()
	for seed := range uint64(8) {
		p := plan.Draw(seed)
		require.Equal(t, p, plan.Shrink(t.Context(), p, func(plan.Plan) bool { return false }))
		empty := plan.Shrink(t.Context(), p, func(plan.Plan) bool { return true })
		require.Equal(t, 3, empty.Size(), "one producer of one stream, and one projector")

		random := rand.New(rand.NewPCG(seed, 1))
		plan.Shrink(t.Context(), p, func(tried plan.Plan) bool {
			_, err := plan.Decode(tried.Encode())
			require.NoError(t, err)
			return random.IntN(3) == 0
		})
	}
}

// A feature that is wanted is in every run, and every such plan can be executed.
func TestAFeatureIsDrawnIntoEveryRun(t *testing.T) {
	t.Parallel()
	for seed := range uint64(500) {
		with := plan.DrawWith(seed, plan.WithSnapshot)
		require.NotEmpty(t, with.Settings.Snapshot, "seed %d", seed)
		_, err := plan.Decode(with.Encode())
		require.NoError(t, err)
		with = plan.DrawWith(seed, plan.WithBuild)
		require.True(t, with.Has(plan.NewVersion), "seed %d", seed)
		_, err = plan.Decode(with.Encode())
		require.NoError(t, err)
	}
}

// When its time is over, Shrink returns the smallest plan known to fail.
func TestShrinkEndsWithItsContext(t *testing.T) {
	t.Parallel()
	p := plan.Draw(7)
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	judged, last := 0, p
	small := plan.Shrink(ctx, p, func(p plan.Plan) bool {
		if judged++; judged == 5 {
			cancel()
		}
		if judged%2 == 1 {
			last = p
			return true
		}
		return false
	})
	require.Equal(t, 5, judged)
	require.Equal(t, last, small)
}
