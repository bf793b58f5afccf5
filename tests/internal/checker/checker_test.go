package checker_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/tests/internal/checker"
	"github.com/sluice-cdc/sluice/tests/internal/history"
)

var begin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func after(d time.Duration) time.Time { return begin.Add(d) }

// good returns a run that keeps every promise: it has two terms, and the second one repeats the
// last messages of the first.
func good() checker.Run {
	expected, actual := &history.Model{}, &history.Model{}
	for _, m := range []*history.Model{expected, actual} {
		m.Fold("a", 1, "T", "1")
		m.Fold("a", 2, "T", "2")
	}
	accept := func(id, position string, version, epoch int64, at time.Duration, duplicate bool) history.Acceptance {
		return history.Acceptance{
			MessageID: id, Aggregate: "a", Session: "a", Position: position, Version: version, Epoch: epoch, At: after(at), Duplicate: duplicate,
		}
	}
	return checker.Run{
		History: history.History{
			Committed: []history.Commit{{Aggregate: "a", Version: 1}, {Aggregate: "a", Version: 2}},
			Accepted: []history.Acceptance{
				accept("m1", "821", 1, 1, 2*time.Second, false),
				accept("m2", "822", 2, 1, 4*time.Second, false),
				accept("m2", "822", 2, 2, 11*time.Second, true),
			},
			Observed: []history.Observation{{Aggregate: "a", Events: 1, Position: "821"}, {Aggregate: "a", Events: 2, Position: "822"}},
		},
		Writes: []checker.Write{
			{Epoch: 0, Answered: true, Began: after(0)},
			{Epoch: 1, Leader: "x", LeaseID: "l1", Answered: true, Began: after(time.Second), Position: "820"},
			{Epoch: 1, Leader: "x", LeaseID: "l1", Answered: true, Began: after(3 * time.Second), Position: "821", Accepted: 1},
			{Epoch: 2, Leader: "y", LeaseID: "l2", Answered: true, Began: after(10 * time.Second), Position: "821", Accepted: 2},
			{Epoch: 2, Leader: "y", LeaseID: "l2", Answered: true, Began: after(12 * time.Second), Position: "822", Accepted: 3},
		},
		FenceAfter: 4 * time.Second,
		Expected:   expected, Actual: actual,
	}
}

// faults are changes to a run, each with the promise that it breaks.
type faults map[string]struct {
	breakIt func(*checker.Run)
	promise error
}

// judgeReports requires that a run keeps every promise, and that each fault in it is reported.
func judgeReports(t *testing.T, run func() checker.Run, all faults) {
	t.Helper()
	require.Empty(t, checker.Judge(run()))
	for name, fault := range all {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := run()
			fault.breakIt(&r)
			require.ErrorIs(t, errors.Join(checker.Judge(r)...), fault.promise)
		})
	}
}

func TestJudgeReportsEveryBrokenPromise(t *testing.T) {
	t.Parallel()
	judgeReports(t, good, faults{
		"G1: a checkpoint before the acknowledgement": {func(r *checker.Run) { r.Writes[2].Accepted = 0 }, checker.ErrUncovered},
		"G1: a checkpoint over a gap":                 {func(r *checker.Run) { r.Writes[2].Position = "822" }, checker.ErrUncovered},
		"G1: a checkpoint goes back":                  {func(r *checker.Run) { r.Writes[4].Position = "820" }, checker.ErrBackwards},
		"G4: an epoch again":                          {func(r *checker.Run) { r.Writes[3].Epoch, r.Writes[4].Epoch = 1, 1 }, checker.ErrEpoch},
		"G4: a lower epoch": {func(r *checker.Run) {
			for n := range 2 {
				r.Writes[1+n].Epoch = 5
				r.Accepted[n].Epoch = 5
			}
		}, checker.ErrEpoch},
		"G4: a write of a term that is over":    {func(r *checker.Run) { r.Writes[4].Epoch, r.Writes[4].LeaseID = 1, "l1" }, checker.ErrEpoch},
		"G4: sent past the fence":               {func(r *checker.Run) { r.Accepted[1].At = after(7*time.Second + time.Millisecond) }, checker.ErrUnfenced},
		"G4: sent on a write without an answer": {func(r *checker.Run) { r.Writes[2].Answered = false; r.Accepted[1].At = after(6 * time.Second) }, checker.ErrUnfenced},
		"G4: sent in an epoch without a leader": {func(r *checker.Run) { r.Accepted[2].Epoch = 3 }, checker.ErrUnfenced},
		"G4: two hold the lease":                {func(r *checker.Run) { r.Lease = errors.New("not linearizable") }, checker.ErrLease},
		"G6: dead-lettered": {func(r *checker.Run) {
			r.Aside = []checker.Aside{{MessageID: "m1", Session: "a", Reason: "Undecodable"}}
		}, checker.ErrSkipped},
		"not at rest":                      {func(r *checker.Run) { r.Unrest = "1 of 2" }, checker.ErrStuck},
		"a service ends":                   {func(r *checker.Run) { r.Ended = []checker.Ended{{"x", errors.New("boom")}} }, checker.ErrGaveUp},
		"G1: the broker never took it":     {func(r *checker.Run) { r.Accepted, r.Writes = r.Accepted[:1], r.Writes[:3] }, history.ErrLost},
		"G3: an effect twice in the end":   {func(r *checker.Run) { r.Actual.Fold("a", 2, "T", "2") }, history.ErrDoubled},
		"G1: an effect missing in the end": {func(r *checker.Run) { r.Actual = &history.Model{} }, history.ErrLost},
		"G3: a total counts an event twice": {func(r *checker.Run) {
			r.ExpectedTotals, r.ActualTotals = &history.Model{}, &history.Model{}
			r.ExpectedTotals.Put("T", history.Summary{Events: 2})
			r.ActualTotals.Put("T", history.Summary{Events: 3})
		}, history.ErrDoubled},
		"G2: folded in a wrong order": {func(r *checker.Run) {
			r.Actual = &history.Model{}
			r.Actual.Put("a", history.Summary{Events: 2, Types: map[string]int64{"T": 2}, FirstOccurredAt: "2", LastOccurredAt: "1", LastType: "T"})
		}, history.ErrReordered},
	})
}

func TestAMessageThatWaitedInTheNetworkMayArriveLate(t *testing.T) {
	t.Parallel()
	r := good()
	r.Accepted[1].At = after(9 * time.Second)
	r.Late = func(leader string, at time.Time) bool { return leader == "x" && at.Equal(after(9*time.Second)) }
	require.Empty(t, checker.Judge(r))
}

// poisoned returns a run that keeps every promise. The second event of an aggregate is poison, and
// is replayed.
func poisoned() checker.Run {
	r := good()
	r.Sick = []checker.Sick{{Aggregate: "a", Before: 0, Total: 2}}
	r.Aside = []checker.Aside{
		{MessageID: "m1", Session: "a", Reason: "ProjectionFailed"},
		{MessageID: "m2", Session: "a", Reason: "AggregateParked"},
		{MessageID: "m1", Session: "a", Reason: "AggregateParked"}, // a repeat
	}
	r.ExpectedBefore, r.ActualBefore = &history.Model{}, &history.Model{}
	r.Replayed = true
	return r
}

// dropped returns the same run, except that the operator dropped the poison.
func dropped() checker.Run {
	r := poisoned()
	r.Sick[0].Dropped = true
	r.Observed = []history.Observation{{Aggregate: "a", Position: "821", Events: -1}, {Aggregate: "a", Events: 1, Position: "822"}}
	r.Expected, r.Actual = &history.Model{}, &history.Model{}
	for _, m := range []*history.Model{r.Expected, r.Actual} {
		m.Fold("a", 2, "T", "2")
	}
	return r
}

func TestG5JudgeReportsADropOfTooManyOrTooFewEvents(t *testing.T) {
	t.Parallel()
	judgeReports(t, dropped, faults{
		"what follows is given up too": {func(r *checker.Run) { r.Observed = r.Observed[:1] }, history.ErrLost},
		"the poison is applied": {func(r *checker.Run) {
			r.Observed = []history.Observation{{Aggregate: "a", Events: 1, Position: "821"}, {Aggregate: "a", Events: 2, Position: "822"}}
		}, history.ErrDoubled},
		"the poison is applied and what follows is not": {func(r *checker.Run) {
			r.Actual = &history.Model{}
			r.Actual.Fold("a", 1, "T", "1")
		}, history.ErrReordered},
	})
}

func TestG5JudgeReportsPoisonThatDoesNotBlockItsAggregate(t *testing.T) {
	t.Parallel()
	r := poisoned()
	r.Replayed, r.Observed, r.Expected, r.Actual = false, []history.Observation{}, nil, nil
	require.Empty(t, checker.Judge(r), "and is not replayed")
	judgeReports(t, poisoned, faults{
		"a later event is applied":       {func(r *checker.Run) { r.ObservedBefore = 1 }, checker.ErrPoison},
		"a later event is not set aside": {func(r *checker.Run) { r.Aside = r.Aside[:1] }, checker.ErrPoison},
		"set aside in a wrong order":     {func(r *checker.Run) { r.Aside[0], r.Aside[1] = r.Aside[1], r.Aside[0] }, checker.ErrPoison},
		"the poison is not named":        {func(r *checker.Run) { r.Aside[0].Reason = "AggregateParked" }, checker.ErrPoison},
		"a healthy aggregate is set aside": {func(r *checker.Run) {
			r.Accepted = append(r.Accepted, history.Acceptance{MessageID: "m3", Aggregate: "b", Session: "b", Epoch: 2, At: after(12 * time.Second)})
			r.Aside[1].MessageID = "m3"
		}, checker.ErrSkipped},
		"another aggregate is held up":        {func(r *checker.Run) { r.ExpectedBefore.Fold("b", 1, "T", "1") }, history.ErrLost},
		"nothing of it is applied in the end": {func(r *checker.Run) { r.Observed = []history.Observation{} }, history.ErrLost},
	})
}

// A leader sends event 3 and is killed, the history is lost before a leader sends it again, and the
// snapshot replaces it. The message arrives when the checkpoint is behind it already.
func TestJudgeAcceptsADelayedMessageThatARowReplaces(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change  func(*checker.Run)
		promise error
	}{
		"replaced":                 {func(*checker.Run) {}, nil},
		"no row":                   {func(r *checker.Run) { r.Accepted = r.Accepted[:4] }, checker.ErrUncovered},
		"no loss":                  {func(r *checker.Run) { r.Losses = nil }, checker.ErrUncovered},
		"committed after the loss": {func(r *checker.Run) { r.Committed[2].At = after(22 * time.Second) }, checker.ErrUncovered},
		"written before the loss":  {func(r *checker.Run) { r.Writes[5].Began = after(19 * time.Second) }, checker.ErrUncovered},
		"of the leader that wrote": {func(r *checker.Run) { r.Accepted[3].Epoch = 3 }, checker.ErrUncovered},
		"the row of another event": {func(r *checker.Run) { r.Accepted[4].MessageID = "m4" }, checker.ErrUncovered},
		"sent again":               {func(r *checker.Run) { r.Accepted[4].Row = false }, checker.ErrUncovered},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := good()
			for _, m := range []*history.Model{r.Expected, r.Actual} {
				m.Fold("a", 3, "T", "3")
			}
			r.Committed = append(r.Committed, history.Commit{Aggregate: "a", Version: 3, At: after(13 * time.Second)})
			message := history.Acceptance{MessageID: "m3", Aggregate: "a", Session: "a", Position: "823", Version: 3, Epoch: 2, At: after(25 * time.Second)}
			row := message
			row.Row, row.Position, row.Epoch, row.At = true, "841", 3, after(26*time.Second)
			r.Accepted = append(r.Accepted, message, row)
			r.Observed = append(r.Observed, history.Observation{Aggregate: "a", Events: 3, Position: "823"})
			r.Losses = []time.Time{after(20 * time.Second)}
			r.Writes = append(r.Writes, checker.Write{Epoch: 3, Leader: "z", LeaseID: "l3", Answered: true, Began: after(24 * time.Second), Position: "840", Accepted: 3})
			r.Late = func(string, time.Time) bool { return true }
			test.change(&r)
			found := false
			for _, err := range checker.Judge(r) {
				found = found || errors.Is(err, checker.ErrUncovered)
			}
			require.Equal(t, test.promise != nil, found)
		})
	}
}
