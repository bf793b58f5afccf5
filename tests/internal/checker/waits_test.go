package checker_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/tests/internal/checker"
	"github.com/sluice-cdc/sluice/tests/internal/history"
)

// A healthy event that waits longer than the bound breaks the promise, unless a fault affected all
// aggregates in the meantime.
func TestHealthyAggregatesWaitAtMostTheBound(t *testing.T) {
	t.Parallel()
	second := func(n int) time.Time { return time.Unix(int64(n), 0) }
	for name, test := range map[string]struct {
		applied   int // when; 0: never
		disturbed []checker.Span
		broken    bool
	}{
		"in time":                    {applied: 20},
		"late":                       {applied: 31, broken: true},
		"never":                      {broken: true},
		"late, disturbed before":     {applied: 31, disturbed: []checker.Span{{From: second(1), To: second(9)}}, broken: true},
		"late, disturbed at first":   {applied: 31, disturbed: []checker.Span{{From: second(1), To: second(11)}}},
		"late, disturbed meanwhile":  {applied: 31, disturbed: []checker.Span{{From: second(15), To: second(16)}}},
		"late, disturbed afterwards": {applied: 31, disturbed: []checker.Span{{From: second(32), To: second(33)}}, broken: true},
		"never, disturbed too late":  {disturbed: []checker.Span{{From: second(31), To: second(33)}}, broken: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var run checker.Run
			run.Accepted = []history.Acceptance{{MessageID: "m", Aggregate: "healthy-1", At: second(10)}}
			if test.applied > 0 {
				run.Observed = []history.Observation{{Aggregate: "healthy-1", Events: 1, At: second(test.applied)}}
			}
			run.Waits = &checker.Waits{Aggregates: []string{"healthy-1"}, Bound: 20 * time.Second, Until: second(100)}
			run.Disturbed = test.disturbed
			waits := 0
			for _, violation := range checker.Judge(run) {
				if checker.Promise(violation) == checker.ErrWaits { //nolint:errorlint // Promise gives the sentinel itself
					waits++
				}
			}
			require.Equal(t, test.broken, waits == 1)
		})
	}
}
