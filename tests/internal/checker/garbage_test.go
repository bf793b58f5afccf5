package checker_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/tests/internal/checker"
	"github.com/sluice-cdc/sluice/tests/internal/history"
)

// littered returns a run that keeps every promise. A stranger's message parks an aggregate between
// its two events, and another message names no aggregate.
func littered() checker.Run {
	r := good()
	r.Garbage = []checker.Garbage{
		{MessageID: "g1", Session: "a", Aggregate: "a", Position: "8215", Reason: "UndecodableBody", After: 1},
		{MessageID: "g2", Session: "sha256:00", Reason: "MissingProperty", After: 1},
	}
	r.Aside = []checker.Aside{
		{MessageID: "g1", Session: "a", Reason: "UndecodableBody"},
		{MessageID: "g2", Session: "sha256:00", Reason: "MissingProperty"},
		{MessageID: "m2", Session: "a", Reason: "AggregateParked"},
	}
	r.Left = r.Aside[1:2:2]
	r.ObservedBefore, r.Replayed = 1, true
	return r
}

func TestG5G6JudgeReportsGarbageThatIsNotDeadLetteredOrDoesNotPark(t *testing.T) {
	t.Parallel()
	r := littered()
	r.Garbage[0].Position, r.Aside, r.ObservedBefore = "821", r.Aside[1:2], 0
	require.Empty(t, checker.Judge(r), "no news to its aggregate")
	r = littered()
	r.Accepted[2].MessageID, r.Accepted[2].Position, r.Accepted[2].Version, r.Accepted[2].Duplicate = "m1", "821", 1, false
	r.Aside = append(r.Aside, checker.Aside{MessageID: "m1", Session: "a", Reason: "AggregateParked"})
	require.Empty(t, checker.Judge(r), "a repeat of what was applied before, which the broker had forgotten")
	judgeReports(t, littered, faults{
		"nothing is left of it":                                 {func(r *checker.Run) { r.Aside = r.Aside[1:] }, checker.ErrSkipped},
		"for another reason":                                    {func(r *checker.Run) { r.Aside[0].Reason = "AggregateParked" }, checker.ErrSkipped},
		"behind what it should hold up":                         {func(r *checker.Run) { r.Aside[0], r.Aside[2] = r.Aside[2], r.Aside[0] }, checker.ErrPoison},
		"what follows is applied":                               {func(r *checker.Run) { r.ObservedBefore = 2 }, checker.ErrPoison},
		"what follows is not set aside":                         {func(r *checker.Run) { r.Aside = r.Aside[:2] }, checker.ErrPoison},
		"what comes before is set aside":                        {func(r *checker.Run) { r.Aside[2].MessageID = "m1" }, checker.ErrPoison},
		"it was no news and parks":                              {func(r *checker.Run) { r.Garbage[0].Position = "821" }, checker.ErrSkipped},
		"garbage without an aggregate is missing":               {func(r *checker.Run) { r.Aside[1] = r.Aside[0] }, checker.ErrSkipped},
		"garbage without an aggregate has another reason":       {func(r *checker.Run) { r.Aside[1].Reason = "AggregateParked" }, checker.ErrSkipped},
		"garbage without an aggregate is gone after the replay": {func(r *checker.Run) { r.Left = nil }, checker.ErrSkipped},
		"more is left after the replay":                         {func(r *checker.Run) { r.Left = r.Aside[1:] }, checker.ErrStuck},
		"what it held up is lost in the end":                    {func(r *checker.Run) { r.Observed = r.Observed[:1] }, history.ErrLost},
		"its aggregate is not whole before it":                  {func(r *checker.Run) { r.Replayed, r.Observed = false, []history.Observation{} }, history.ErrLost},
		"what it holds up is seen, not replayed":                {func(r *checker.Run) { r.Replayed = false }, history.ErrDoubled},
	})
}
