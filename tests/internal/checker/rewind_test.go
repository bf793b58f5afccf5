package checker_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/tests/internal/checker"
	"github.com/sluice-cdc/sluice/tests/internal/history"
)

// rewound returns a run that keeps every promise. Both events were published when the operator
// rewound the checkpoint to before the second one, and the next leader published that one again.
func rewound() checker.Run {
	r := good()
	r.Accepted = append(r.Accepted, history.Acceptance{
		MessageID: "m2", Aggregate: "a", Session: "a", Position: "822", Version: 2, Epoch: 4, At: after(21 * time.Second),
	})
	r.Writes = append(
		r.Writes,
		checker.Write{Epoch: 3, Leader: "operator", LeaseID: "l3", Answered: true, Began: after(19 * time.Second), Position: "821", Accepted: 3, Generation: 1},
		checker.Write{Epoch: 4, Leader: "x", LeaseID: "l4", Answered: true, Began: after(20 * time.Second), Position: "821", Accepted: 3, Generation: 1},
		checker.Write{Epoch: 4, Leader: "x", LeaseID: "l4", Answered: true, Began: after(22 * time.Second), Position: "822", Accepted: 4, Generation: 1},
	)
	return r
}

func TestG6EventsBehindARewindMustBePublishedAgain(t *testing.T) {
	t.Parallel()
	judgeReports(t, rewound, faults{
		"the broker knows what is published again": {func(r *checker.Run) { r.Accepted[3].Duplicate = true }, checker.ErrSkipped},
		"nothing is published again":               {func(r *checker.Run) { r.Accepted = r.Accepted[:3]; r.Writes[7].Accepted = 3 }, checker.ErrSkipped},
		"the checkpoint goes back without an operator": {func(r *checker.Run) {
			for n := range r.Writes {
				r.Writes[n].Generation = 1
			}
		}, checker.ErrBackwards},
	})
	r := rewound()
	r.Writes[5].Position, r.Writes[6].Position = "822", "822"
	r.Accepted, r.Writes = r.Accepted[:3], r.Writes[:7]
	require.Empty(t, checker.Judge(r), "nothing is behind it")
}
