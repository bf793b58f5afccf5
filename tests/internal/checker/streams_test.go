package checker_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/tests/internal/checker"
	"github.com/sluice-cdc/sluice/tests/internal/history"
)

// twoStreams is a run that keeps every promise: beside the good one's stream there is another, with a leader, epochs and
// positions of its own, which is far behind.
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

func TestG1G4JudgeHoldsEachStreamAgainstItsOwnCheckpoint(t *testing.T) {
	t.Parallel()
	require.Empty(t, checker.Judge(twoStreams()))
	for name, test := range map[string]struct {
		breakIt func(*checker.Run)
		promise error
	}{
		"a checkpoint before its stream's acknowledgement": {func(r *checker.Run) { r.Writes[6].Accepted = 3 }, checker.ErrUncovered},
		"a checkpoint goes back":                           {func(r *checker.Run) { r.Writes[6].Position = "809" }, checker.ErrBackwards},
		"an epoch again":                                   {func(r *checker.Run) { r.Writes[6].LeaseID = "l8" }, checker.ErrEpoch},
		"sent in the other stream's epoch":                 {func(r *checker.Run) { r.Accepted[3].Epoch = 1 }, checker.ErrUnfenced},
		"sent on a write of the other stream's checkpoint": {func(r *checker.Run) { r.Writes[5].Began = after(9 * time.Second) }, checker.ErrUnfenced},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := twoStreams()
			test.breakIt(&r)
			require.ErrorIs(t, errors.Join(checker.Judge(r)...), test.promise)
		})
	}
}
