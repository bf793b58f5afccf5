package checker_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/tests/internal/checker"
	"github.com/sluice-cdc/sluice/tests/internal/history"
)

// twoStreams returns a run that keeps every promise. Beside the stream of the good run there is
// another, with its own leader, epochs and positions, which is far behind.
func twoStreams() checker.Run {
	r := good()
	r.Committed = append(r.Committed, history.Commit{Aggregate: "b", Version: 1})
	r.Accepted = append(r.Accepted, history.Acceptance{
		MessageID: "n1", Stream: "second", Aggregate: "b", Session: "b", Position: "811", Version: 1, Epoch: 2, At: after(14 * time.Second),
	})
	r.Observed = append(r.Observed, history.Observation{Aggregate: "b", Events: 1, Position: "811"})
	r.Writes = append(r.Writes,
		checker.Write{Stream: "second", Epoch: 2, Leader: "x", LeaseID: "l7", Answered: true, Began: after(13 * time.Second), Position: "810", Accepted: 3},
		checker.Write{Stream: "second", Epoch: 2, Leader: "x", LeaseID: "l7", Answered: true, Began: after(15 * time.Second), Position: "811", Accepted: 4},
	)
	for _, m := range []*history.Model{r.Expected, r.Actual} {
		m.Fold("b", 1, "T", "1")
	}
	return r
}

func TestG1G4EachStreamIsJudgedByItsOwnCheckpoint(t *testing.T) {
	t.Parallel()
	judgeReports(t, twoStreams, faults{
		"a checkpoint before its stream's acknowledgement": {func(r *checker.Run) { r.Writes[6].Accepted = 3 }, checker.ErrUncovered},
		"a checkpoint goes back":                           {func(r *checker.Run) { r.Writes[6].Position = "809" }, checker.ErrBackwards},
		"an epoch again":                                   {func(r *checker.Run) { r.Writes[6].LeaseID = "l8" }, checker.ErrEpoch},
		"sent in the other stream's epoch":                 {func(r *checker.Run) { r.Accepted[3].Epoch = 1 }, checker.ErrUnfenced},
		"sent on a write of the other stream's checkpoint": {func(r *checker.Run) { r.Writes[5].Began = after(9 * time.Second) }, checker.ErrUnfenced},
	})
}

// sharedPoison returns a run that keeps every promise. Two streams carry the events of one
// aggregate, and the first event of the second stream is poison. The broker accepted it second,
// though it was committed first.
func sharedPoison() checker.Run {
	r := good()
	for n := range r.Committed {
		r.Committed[n].Stream = "first"
	}
	for n := range r.Accepted {
		r.Accepted[n].Stream = "first"
	}
	for n := range r.Writes {
		r.Writes[n].Stream = "first"
	}
	poison := history.Commit{Stream: "second", Aggregate: "a", Version: 1}
	r.Committed = slices.Insert(r.Committed, 0, poison)
	r.Accepted = slices.Insert(r.Accepted, 1, history.Acceptance{
		MessageID: "n1", Stream: "second", Aggregate: "a", Session: "a", Position: "811", Version: 1, Epoch: 2, At: after(3 * time.Second),
	})
	for n := range r.Writes {
		if r.Writes[n].Accepted > 1 {
			r.Writes[n].Accepted++
		}
	}
	r.Writes = append(r.Writes, checker.Write{Stream: "second", Epoch: 2, Leader: "x", LeaseID: "l7", Answered: true, Began: after(2 * time.Second), Position: "810"})
	r.Sick = []checker.Sick{{Aggregate: "a", Total: 3, Poison: poison}}
	r.Aside = []checker.Aside{
		{MessageID: "n1", Session: "a", Reason: "ProjectionFailed"},
		{MessageID: "m2", Session: "a", Reason: "AggregateParked"},
	}
	r.Observed = r.Observed[:1:1]
	r.ObservedBefore = 1
	r.Expected, r.Actual = nil, nil
	return r
}

func TestG5PoisonInOneOfTwoStreamsBlocksInTheBrokersOrder(t *testing.T) {
	t.Parallel()
	r := sharedPoison()
	visible, rank := r.Visible(), r.Ranks()
	var seen []bool
	var ranks []int64
	for _, c := range r.Committed {
		seen, ranks = append(seen, visible(c)), append(ranks, rank(c))
	}
	require.Equal(t, []bool{false, true, false}, seen)
	require.Equal(t, []int64{2, 1, 3}, ranks)
	require.Equal(t, int64(math.MaxInt64), rank(history.Commit{Stream: "second", Aggregate: "a", Version: 2}), "the broker has not taken it")
	r.Replayed, r.Sick[0].Dropped = true, true
	require.False(t, r.Visible()(r.Committed[0]))
	require.True(t, r.Visible()(r.Committed[2]))

	judgeReports(t, sharedPoison, faults{
		"what the broker took behind it is applied": {func(r *checker.Run) {
			r.Observed = append(r.Observed, history.Observation{Aggregate: "a", Events: 2, Position: "822"})
			r.ObservedBefore = 2
		}, checker.ErrPoison},
		"the poison is applied": {func(r *checker.Run) {
			r.Observed = append(r.Observed, history.Observation{Aggregate: "a", Events: 2, Stream: "second", Position: "811"})
			r.ObservedBefore = 2
		}, checker.ErrPoison},
		"what the broker took before it is not applied": {func(r *checker.Run) { r.Observed = []history.Observation{} }, history.ErrLost},
		"the other stream's is not set aside":           {func(r *checker.Run) { r.Aside = r.Aside[:1] }, checker.ErrPoison},
		"what came before it is set aside":              {func(r *checker.Run) { r.Aside[1].MessageID = "m1" }, checker.ErrPoison},
	})
}

// An event of one stream that is abandoned is distinguished from the event of the other stream with
// the same version. Garbage is compared with the positions of its own stream only.
func TestG5G6EventsAndGarbageAreDistinguishedByStream(t *testing.T) {
	t.Parallel()
	r := sharedPoison()
	r.Given = []checker.Given{{Stream: "second", Aggregate: "a", Version: 1}}
	require.Equal(t, r.Committed[1:], r.Kept())

	r = sharedPoison()
	r.Sick, r.Aside = nil, nil
	r.Garbage = []checker.Garbage{{MessageID: "g", Session: "a", Aggregate: "a", Stream: "second", Position: "8111", After: 2}}
	patients := r.Patients()
	require.Len(t, patients, 1)
	require.Equal(t, []int64{2, 3}, []int64{patients[0].Before, patients[0].Total})
	r.Garbage[0].Position = "811"
	require.Empty(t, r.Patients(), "it is no news to its stream")
}
