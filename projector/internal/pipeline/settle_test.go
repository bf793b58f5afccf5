package pipeline

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/projector/internal/apply"
)

func TestSettlement(t *testing.T) {
	for _, test := range []struct {
		name   string
		result apply.Result
		want   settlement
	}{
		{"committed now", apply.Result{Kind: apply.Applied}, settlement{action: complete}},
		{"committed before", apply.Result{Kind: apply.Duplicate}, settlement{action: complete}},
		{"not decided", apply.Result{}, settlement{action: leave}},
		{"waiting for an earlier version", apply.Result{Kind: apply.Gap, Reason: "VersionGap"}, settlement{action: leave}},
		{
			"behind a poison",
			apply.Result{Kind: apply.Parked, Reason: "AggregateParked", Description: "why"},
			settlement{action: deadLetter, reason: "AggregateParked", description: "why"},
		},
		{
			"never to be applied",
			apply.Result{Kind: apply.Poison, Recorded: true, Reason: "WriteRefused", Description: "why"},
			settlement{action: deadLetter, reason: "WriteRefused", description: "why"},
		},
		{"never to be applied, and its aggregate not parked yet", apply.Result{Kind: apply.Poison, Reason: "WriteRefused"}, settlement{action: leave}},
	} {
		t.Run(test.name, func(t *testing.T) { require.Equal(t, test.want, settlementOf(test.result)) })
	}
}

func TestG5DescriptionsAreValidUTF8(t *testing.T) {
	got := settlementOf(apply.Result{Kind: apply.Poison, Recorded: true, Description: "no rule for bad \xff\xfe utf-8"}).description
	require.Equal(t, "no rule for bad \ufffd utf-8", got)
}

func TestSettlementShortensDescriptions(t *testing.T) {
	for _, long := range []string{strings.Repeat("x", 5000), strings.Repeat("ö", 5000), "x" + strings.Repeat("世", 5000)} {
		got := settlementOf(apply.Result{Kind: apply.Poison, Recorded: true, Description: long}).description
		require.LessOrEqual(t, len(got), maxDescription)
		require.Greater(t, len(got), maxDescription-8)
		require.True(t, utf8.ValidString(got))
		require.True(t, strings.HasSuffix(got, "…"))
	}
	short := strings.Repeat("x", maxDescription)
	require.Equal(t, short, settlementOf(apply.Result{Kind: apply.Poison, Recorded: true, Description: short}).description)
}

// What takes locks away is outlasted by the deliveries that are left.
func TestRedeliveriesWaitLongerEachTime(t *testing.T) {
	for n, want := range map[uint32]time.Duration{3: 0, 4: 500 * time.Millisecond, 6: 2 * time.Second, 9: 16 * time.Second, 100: 30 * time.Second} {
		require.Equal(t, want, redeliveryPause(n))
	}
}
