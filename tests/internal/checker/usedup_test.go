package checker_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/tests/internal/checker"
	"github.com/sluice-cdc/sluice/tests/internal/history"
)

const (
	taken   = "MaxDeliveryCountExceeded"
	expired = "TTLExpiredException"
)

// usedUp returns a run that keeps every promise. Of the three events of an aggregate the second one
// exhausts its deliveries and parks it, and the replay applies all.
func usedUp() checker.Run {
	r := good()
	r.Committed = append(r.Committed, history.Commit{Aggregate: "a", Version: 3})
	r.Accepted = append(r.Accepted, history.Acceptance{
		MessageID: "m3", Aggregate: "a", Session: "a", Position: "823", Version: 3, Epoch: 2, At: after(13 * time.Second),
	})
	r.Observed[1] = history.Observation{Aggregate: "a", Events: 3, Position: "823"}
	r.ObservedBefore, r.Replayed = 1, true
	r.Expected, r.Actual = nil, nil
	r.UsedUp = &checker.UsedUp{Unjudged: true, Held: holding(1), Type: typeOf}
	r.Aside = aside("DeliveriesUsedUp m2", "AggregateParked m3")
	return r
}

func typeOf(_ string, version int64) string { return fmt.Sprint("T-", version) }

// holding returns a read model that contains versions of the aggregate.
func holding(versions ...int64) *history.Model {
	m := &history.Model{}
	for _, v := range versions {
		m.Fold("a", v, typeOf("a", v), fmt.Sprint(v))
	}
	return m
}

// aside returns dead letters, each given as its reason and its message.
func aside(letters ...string) (all []checker.Aside) {
	for _, l := range letters {
		m := checker.Aside{Session: "a"}
		if _, err := fmt.Sscan(l, &m.Reason, &m.MessageID); err != nil {
			panic(err)
		}
		all = append(all, m)
	}
	return all
}

// takenOut returns a run in which the broker dead-lettered an event and the two others were
// applied, in one change each. The operator has examined the event and dropped it.
func takenOut(version int64) func() checker.Run {
	return func() checker.Run {
		r := usedUp()
		var rest []int64
		r.Observed = nil
		for v := int64(1); v <= 3; v++ {
			if v != version {
				rest = append(rest, v)
				r.Observed = append(r.Observed, history.Observation{Aggregate: "a", Events: int64(len(rest)), Position: fmt.Sprint(820 + v)})
			}
		}
		r.ObservedBefore = 2
		r.UsedUp.Held = holding(rest...)
		r.UsedUp.Judge("a", version, false)
		r.Aside = aside(fmt.Sprint(taken, " m", version))
		return r
	}
}

func TestRunsWithExhaustedDeliveriesAreAccepted(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		run    func() checker.Run
		change func(*checker.Run)
	}{
		"parked in time":                                               {usedUp, func(*checker.Run) {}},
		"parked in time, at rest":                                      {usedUp, func(r *checker.Run) { r.UsedUp.AtRest = []string{"a"} }},
		"overtaken, and versions do not show it":                       {takenOut(2), func(*checker.Run) {}},
		"expired, and versions do not show it":                         {takenOut(2), func(r *checker.Run) { r.Aside = aside(expired + " m2") }},
		"the first one is overtaken, and any version may be the first": {takenOut(1), func(r *checker.Run) { r.UsedUp.Unjudged = false }},
		"the last one is taken out: nothing overtakes it":              {takenOut(3), func(r *checker.Run) { r.UsedUp.Unjudged, r.UsedUp.First = false, 1 }},
		"what follows one that was taken out is missed": {
			usedUp, func(r *checker.Run) { r.UsedUp.Unjudged, r.Aside = false, aside(taken+" m2", "VersionGap m3") },
		},
		"what parked it was taken out by the broker after all": {usedUp, func(r *checker.Run) { r.Aside = aside(taken+" m2", "AggregateParked m3") }},
		"a repeat of what was applied is taken out":            {usedUp, func(r *checker.Run) { r.Aside = append(r.Aside, aside(taken+" m1")...) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := test.run()
			test.change(&r)
			require.Empty(t, checker.Judge(r))
		})
	}
}

func TestJudgeReportsExhaustedDeliveriesThatAreOvertakenOrLost(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		run     func() checker.Run
		breakIt func(*checker.Run)
		promise error
		want    string
	}{
		"G1: neither applied nor set aside": {
			usedUp, func(r *checker.Run) { r.Aside = r.Aside[:1] }, history.ErrLost, "version 3 is neither applied nor set aside",
		},
		"G2: the projector parked it, and the next one is applied": {
			usedUp, func(r *checker.Run) { r.UsedUp.Held = holding(1, 3) }, history.ErrReordered, "version 2 is set aside as DeliveriesUsedUp, and version 3 is applied",
		},
		"G2: overtaken where its version is missed": {
			takenOut(2), func(r *checker.Run) { r.UsedUp.Unjudged = false }, history.ErrReordered, "although its version shows that one is missing",
		},
		"G2: expired and overtaken where its version is missed": {
			takenOut(2),
			func(r *checker.Run) { r.UsedUp.Unjudged, r.Aside = false, aside(expired+" m2") },
			history.ErrReordered, "(TTLExpiredException), and version 3 is applied although",
		},
		"G2: the first one is overtaken where versions begin with 1": {
			takenOut(1),
			func(r *checker.Run) { r.UsedUp.Unjudged, r.UsedUp.First = false, 1 },
			history.ErrReordered, "version 1 was taken out",
		},
		"G3: applied twice": {
			usedUp, func(r *checker.Run) { r.UsedUp.Held = holding(1, 1) }, history.ErrDoubled, "version 1 is applied 2 times",
		},
		"G5: applied behind what parked it": {
			usedUp, func(r *checker.Run) { r.ObservedBefore = 2 }, checker.ErrPoison, "went to position 823 though version 2 at 822 parked it",
		},
		"G5: taken out at rest": {
			takenOut(2), func(r *checker.Run) { r.UsedUp.AtRest = []string{"b", "a"} },
			checker.ErrPoison, "nothing kept projectors from parking it before",
		},
		"G6: set aside behind nothing": {
			usedUp, func(r *checker.Run) { r.Aside, r.UsedUp.Held = aside("AggregateParked m3"), holding(1, 2) }, checker.ErrSkipped, "version 3 is set aside behind nothing",
		},
		"G6: a gap where nothing is missing": {
			usedUp, func(r *checker.Run) { r.Aside = aside("VersionGap m2", "AggregateParked m3") }, checker.ErrSkipped, "nothing before it is missing",
		},
		"G6: a gap before what is missing": {
			usedUp, func(r *checker.Run) { r.Aside = aside(taken+" m3", "VersionGap m2") }, checker.ErrSkipped, "nothing before it is missing",
		},
		"G6: for a reason that nothing here can have": {
			usedUp, func(r *checker.Run) { r.Aside[0].Reason = "ProjectionFailed" }, checker.ErrSkipped, "dead-lettered: version 2 of a: ProjectionFailed",
		},
		"G1: given up and not looked at": {
			takenOut(2), func(r *checker.Run) { r.UsedUp.Abandoned = nil }, history.ErrLost, "holds 2 of 3 events",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := test.run()
			test.breakIt(&r)
			found := errors.Join(checker.Judge(r)...)
			require.ErrorIs(t, found, test.promise)
			require.ErrorContains(t, found, test.want)
		})
	}
}

// A run that did not come to rest is judged by what was set aside, and not by what is still
// missing.
func TestAnUnfinishedRunIsNotJudgedForMissingEvents(t *testing.T) {
	t.Parallel()
	r := usedUp()
	r.Unrest, r.Aside = "it goes on", r.Aside[:1]
	found := errors.Join(checker.Judge(r)...)
	require.ErrorIs(t, found, checker.ErrStuck)
	require.NotErrorIs(t, found, history.ErrLost)
	r.Aside[0].Reason = "ProjectionFailed"
	require.ErrorIs(t, errors.Join(checker.Judge(r)...), checker.ErrSkipped)
}

// An event is judged once, even if the operator repeats the command.
func TestAnEventIsJudgedOnce(t *testing.T) {
	t.Parallel()
	var u checker.UsedUp
	u.Judge("a", 1, false)
	u.Judge("a", 1, false)
	u.Judge("a", 2, true)
	require.Equal(t, []checker.Given{{Aggregate: "a", Version: 1}}, u.Abandoned)
	require.Equal(t, 2, u.Judged())
}
