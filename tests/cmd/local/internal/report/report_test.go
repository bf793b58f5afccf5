package report_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/tests/cmd/local/internal/report"
	"github.com/sluice-cdc/sluice/tests/internal/history"
)

var update = flag.Bool("update", false, "write the golden files")

func sample() report.Outcome {
	return report.Outcome{
		Report: report.Report{
			EventsInserted: 6964, EventsPublished: 6964, EventsApplied: 6964, Aggregates: 300, DuplicatesPublished: 24,
			Failovers: []report.Failover{
				{Kind: "lose-leader", AtMs: 1000, FirstPublishAfterMs: 6970, LeadsAfterMs: 7001, MeasuredBy: report.ByPublish},
				{Kind: "term-leader", AtMs: 8003, FirstPublishAfterMs: 1051, LeadsAfterMs: 1051, MeasuredBy: report.ByTakeover},
			},
			ThroughputEPS: 761.5, LatencyMs: history.Latency{P50: 3.255, P99: 116.863, Max: 12_040.5},
			RSSMb: report.RSS{Leader: 23.2, Standby: 18.5, Projector: 66.7}, ElapsedMs: 9184, Seed: 7,
		},
		Steady: history.Latency{P50: 3.2, P99: 9.4, Max: 81.7},
		Right:  300, Checked: "the timeline against --expect",
	}
}

func wrong() report.Outcome {
	o := sample()
	o.Right, o.Lost, o.DuplicateEffects, o.OutOfOrder, o.Mismatches, o.DeadLettered = 289, 3, 1, 2, 11, 3
	for i := range 12 {
		o.Differences = append(o.Differences, string(rune('a'+i))+": events is 2, expected 3")
	}
	o.Violations = []string{"events reordered: aggregate a: the read model went back"}
	o.DeadLetters = []string{"message 1f of session a: UndecodableBody: not BSON"}
	o.Failure = "The run was given up: nothing moved for 30s."
	o.Logs = "The services' logs are in /somewhere/logs. Their last complaints: none"
	return o
}

func TestReportHasExactlyTheFieldsOfTheContract(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "report.json")
	require.NoError(t, sample().Write(path))
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	golden(t, "report.json", got)
}

func TestSummariesOfSuccessAndFailure(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]report.Outcome{"right": sample(), "wrong": wrong()} {
		require.Equal(t, name == "right", o.OK())
		var b bytes.Buffer
		o.Summary(&b)
		golden(t, name+".txt", b.Bytes())
	}
}

func TestAFailedRunWithARightReadModelReportsBoth(t *testing.T) {
	t.Parallel()
	o := sample()
	o.Failure = "The run was given up: no standby took over."
	var b bytes.Buffer
	o.Summary(&b)
	require.Contains(t, b.String(), "FAILED, although 300 of 300 aggregates are right in the end")
	require.Contains(t, b.String(), "no standby took over")
}

func TestEveryKindOfFailureCounts(t *testing.T) {
	t.Parallel()
	for name, breakIt := range map[string]func(*report.Outcome){
		"lost":         func(o *report.Outcome) { o.Lost = 1 },
		"duplicated":   func(o *report.Outcome) { o.DuplicateEffects = 1 },
		"out of order": func(o *report.Outcome) { o.OutOfOrder = 1 },
		"mismatch":     func(o *report.Outcome) { o.Mismatches = 1 },
		"violation":    func(o *report.Outcome) { o.Violations = []string{"x"} },
		"source gap":   func(o *report.Outcome) { o.SourceGaps = []string{"x"} },
		"given up":     func(o *report.Outcome) { o.Failure = "x" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := sample()
			breakIt(&o)
			require.False(t, o.OK())
		})
	}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(path, got, 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), string(got))
}

func TestTheSummaryReportsWhatHappened(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	o := report.Outcome{Right: 2675, Unexpected: 10, Report: report.Report{Aggregates: 2675, Mismatches: 10}, Differences: []string{"other: should not be there, with 3 events"}}
	o.Summary(&b)
	require.Contains(t, b.String(), "NOT RIGHT: 2675 of 2675 aggregates are, and 10 should not be there at all")
	require.Contains(t, b.String(), "other: should not be there")
	b.Reset()
	o = report.Outcome{Right: 1, Report: report.Report{Aggregates: 2, Mismatches: 1, Lost: 5, DeadLettered: 4, Parked: 1}}
	o.Summary(&b)
	require.Contains(t, b.String(), "1, beside 4 that are set aside: dead-lettered")
}
