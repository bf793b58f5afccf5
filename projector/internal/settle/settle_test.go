package settle

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/projector/internal/apply"
)

func TestChoose(t *testing.T) {
	for _, test := range []struct {
		name   string
		result apply.Result
		want   Choice
	}{
		{"committed now", apply.Result{Kind: apply.Applied}, Choice{Action: Complete}},
		{"committed before", apply.Result{Kind: apply.Duplicate}, Choice{Action: Complete}},
		{"not decided", apply.Result{}, Choice{Action: Leave}},
		{"waiting for an earlier version", apply.Result{Kind: apply.Gap, Reason: "VersionGap"}, Choice{Action: Leave}},
		{
			"behind a poison",
			apply.Result{Kind: apply.Parked, Reason: "AggregateParked", Description: "why"},
			Choice{Action: DeadLetter, Reason: "AggregateParked", Description: "why"},
		},
		{
			"never to be applied",
			apply.Result{Kind: apply.Poison, Recorded: true, Reason: "WriteRefused", Description: "why"},
			Choice{Action: DeadLetter, Reason: "WriteRefused", Description: "why"},
		},
		{"never to be applied, and its aggregate not parked yet", apply.Result{Kind: apply.Poison, Reason: "WriteRefused"}, Choice{Action: Leave}},
	} {
		t.Run(test.name, func(t *testing.T) { require.Equal(t, test.want, Choose(test.result)) })
	}
}

func TestChooseShortensDescriptions(t *testing.T) {
	for _, long := range []string{strings.Repeat("x", 5000), strings.Repeat("ö", 5000), "x" + strings.Repeat("世", 5000)} {
		got := Choose(apply.Result{Kind: apply.Poison, Recorded: true, Description: long}).Description
		require.LessOrEqual(t, len(got), maxDescription)
		require.Greater(t, len(got), maxDescription-8)
		require.True(t, utf8.ValidString(got))
		require.True(t, strings.HasSuffix(got, "…"))
	}
	short := strings.Repeat("x", maxDescription)
	require.Equal(t, short, Choose(apply.Result{Kind: apply.Poison, Recorded: true, Description: short}).Description)
}
