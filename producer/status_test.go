package producer

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/producer/internal/checkpoint"
	"github.com/sluice-cdc/sluice/producer/internal/operator"
)

// The oplog alert is made of this number.
func TestBehindIsThePositionsAge(t *testing.T) {
	now := time.Unix(0x65000000, 0).Add(90 * time.Second)
	for name, c := range map[string]struct {
		position string
		want     int64
	}{
		"a token of 90 s ago":    {"8265000000000000012B0229296E04", 90_000},
		"of a clock ahead of us": {"82650001000000000129", 0},
		"none yet":               {"", -1},
		"not one of MongoDB's":   {"AAAA65000000", -1},
		"cut off":                {"826500", -1},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, ageMS(c.position, now)) })
	}
}

// G6: the status and the metrics show a snapshot that runs, one that is paused, and for how long
// changes have been left out, also while it is paused. One of single aggregates leaves none out.
func TestG6ASnapshotThatKeepsChangesBackIsShown(t *testing.T) {
	began := time.Date(2026, 3, 1, 11, 0, 0, 0, time.UTC)
	var shown *operator.SnapshotStatus
	metrics := map[string]func() float64{}
	registerSnapshotMetrics(func(name, _ string, value func() float64) { metrics[name] = value },
		func() *operator.SnapshotStatus { return shown })
	paused := func() float64 { return metrics["sluice_producer_snapshot_paused"]() }
	suppression := func() float64 { return metrics["sluice_producer_snapshot_suppression_seconds"]() }
	text := func() string {
		var out strings.Builder
		operator.SnapshotReport{Snapshot: shown}.Print(&out)
		return out.String()
	}
	require.Zero(t, paused())
	require.Zero(t, suppression())

	b := checkpoint.Backfill{Mode: checkpoint.BackfillLost, Rows: 100, Estimate: 1000, BeganAt: began}
	shown = operator.SnapshotOf(&b, began.Add(10*time.Second))
	require.Zero(t, paused())
	require.InDelta(t, 10, suppression(), 0)
	require.Contains(t, text(), "10.0 a second, about 1m30s to go; changes of documents that it has not reached have waited for up to 10s")

	b.Paused = true
	shown = operator.SnapshotOf(&b, began.Add(time.Hour))
	require.InDelta(t, 1, paused(), 0)
	require.InDelta(t, 3600, suppression(), 0)
	require.Contains(t, text(), "PAUSED: `producer snapshot resume` continues it; changes of documents that it has not reached have waited for up to 1h0m0s")

	b.Mode = checkpoint.BackfillAggregates
	shown = operator.SnapshotOf(&b, began.Add(time.Hour))
	require.InDelta(t, 1, paused(), 0)
	require.Zero(t, suppression())
	require.NotContains(t, text(), "have waited")
}
