// Package report formats the results of a run: the JSON of `--report`, and the summary.
package report

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/sluice-cdc/sluice/tests/internal/history"
)

// Unknown stands for a number that could not be measured, such as the broker's counts with
// `--external`.
const Unknown = -1

// Failover is a leader that was killed or stopped, and its successor.
type Failover struct {
	Kind string `json:"kind"`
	// AtMs is when the signal was sent, in milliseconds since the first insert.
	AtMs int64 `json:"at_ms"`
	// FirstPublishAfterMs is the time from the signal to the first message of a later epoch that
	// the broker accepted.
	FirstPublishAfterMs int64 `json:"first_publish_after_ms"`
	// LeadsAfterMs is the time from the signal until another producer reports that it leads and
	// reads.
	LeadsAfterMs int64 `json:"leads_after_ms"`
	// MeasuredBy is "publish", or "takeover" if nothing was left to publish or the broker was not
	// observed: then FirstPublishAfterMs is LeadsAfterMs.
	MeasuredBy string `json:"measured_by"`
	// Epoch is that of the leader that was taken away.
	Epoch int64 `json:"-"`
}

// The values of Failover.MeasuredBy.
const (
	ByPublish  = "publish"
	ByTakeover = "takeover"
)

// RSS is the most resident memory seen of each role, in MiB.
type RSS struct {
	Leader    float64 `json:"leader"`
	Standby   float64 `json:"standby"`
	Projector float64 `json:"projector"`
}

// Report is the result of a run; its fields are the contract of ARCHITECTURE §11.
type Report struct {
	EventsInserted      int64           `json:"events_inserted"`
	EventsPublished     int64           `json:"events_published"` // different messages; Unknown if the broker was not observed
	EventsApplied       int64           `json:"events_applied"`
	Aggregates          int             `json:"aggregates"`
	Lost                int64           `json:"lost"`
	DuplicateEffects    int64           `json:"duplicate_effects"`
	OutOfOrder          int             `json:"out_of_order"`
	Mismatches          int             `json:"mismatches"`
	DuplicatesPublished int64           `json:"duplicates_published"` // dropped by the broker's duplicate detection
	Parked              int64           `json:"parked"`
	DeadLettered        int64           `json:"dead_lettered"`
	Failovers           []Failover      `json:"failovers"`
	ThroughputEPS       float64         `json:"throughput_eps"` // first insert to last effect
	LatencyMs           history.Latency `json:"latency_ms"`
	RSSMb               RSS             `json:"rss_mb"`
	ElapsedMs           int64           `json:"elapsed_ms"` // first insert to the end of the check
	Seed                uint64          `json:"seed"`
}

// Write writes the report as indented JSON.
func (r Report) Write(path string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("encode report: %w", err)
	}
	if err := os.WriteFile(path, append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}
