package build

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/projector/internal/apply"
)

func TestAReportExplainsItsNumbers(t *testing.T) {
	for _, c := range []struct {
		report Verification
		ok     bool
		want   string
	}{
		{Verification{Events: 1, Documents: 1}, true, "1 event, 1 document: all right"},
		{Verification{Events: 9, Documents: 2, Differing: 1}, false, "9 events, 2 documents: 1 differs"},
		{Verification{Events: 9, Documents: 3, Differing: 2, Changing: 1}, false, "2 differ, 1 changes while being compared"},
		{Verification{Events: 20}, false, "20 events, 0 documents: nothing was compared, so nothing is verified: the projection writes nothing"},
		{Verification{Events: 20, Poison: 20, Refusal: "no good"}, false, "20 events, 0 documents: nothing was compared, so nothing is verified\n"},
		{Verification{Events: 20, Poison: 20, Refusal: "no good"}, false, "20 events can never be applied: no good\n    `mine parked list`"},
		{Verification{Events: 20, Unknown: 3}, false, "of a change): 3 documents\n"},
		{Verification{Events: 20, Unknown: 3}, false, "nothing could be compared"},
		{Verification{Source: "shop.events"}, false, "shop.events holds no document"},
	} {
		c.report.program = "mine"
		var out strings.Builder
		c.report.Print(&out, 1)
		require.Equal(t, c.ok, c.report.OK(), "%+v", c.report)
		require.Contains(t, out.String(), c.want)
	}
}

// Of many reasons three are printed; those that wait for an operator come first.
func TestAParkedAggregateIsReportedBeforeLateOnes(t *testing.T) {
	v := &Verifier{Program: "mine", Guards: func(context.Context, ...string) (map[string]apply.Guard, error) {
		return map[string]apply.Guard{"o9": {Parked: &apply.Record{Reason: "ProjectionFailed"}}}, nil
	}}
	why, err := v.explain(t.Context(), map[string]int64{"o1": 1, "o2": 1, "o3": 1, "o4": 1, "o9": 1})
	require.NoError(t, err)
	require.Equal(t, "aggregate o9 is parked (ProjectionFailed): mine parked show -- o9; no event of aggregate o1 has been applied: they are on their way, or lost; "+
		"no event of aggregate o2 has been applied: they are on their way, or lost; and 2 more aggregates", why)
}
