package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/sluice-cdc/sluice/tests/internal/history"
)

// The credits that a message through a topic of the tier Standard uses of the namespace's 1,000 a
// second: send, filter and receive, and the accept of its session if the message has one of its own
// (infra/README.md, "Capacity"). Operations are charged likewise.
const (
	creditsLeast = 3
	creditsMost  = 4
)

// Report is the result of a load test.
type Report struct {
	Inserted   int64   `json:"events_inserted"`
	Visible    int64   `json:"events_visible"`
	Aggregates int     `json:"aggregates"`
	Size       int     `json:"event_bytes"`    // of data
	AskedEPS   float64 `json:"asked_eps"`      // 0: as fast as possible
	Throughput float64 `json:"throughput_eps"` // events a second, from the first insert to the last effect
	// LatencyMs is measured from just before the insert until the effect is visible.
	LatencyMs history.Latency `json:"latency_ms"`
	// CreditsLeast and CreditsMost are estimates for Standard: with many messages in each session,
	// and with one each.
	CreditsLeast int64 `json:"credits_least"`
	CreditsMost  int64 `json:"credits_most"`
	// CostMost is the price of CreditsMost operations in US dollars.
	CostMost float64 `json:"cost_usd_most"`
	Lost     int64   `json:"lost"`
	Doubled  int64   `json:"duplicate_effects"`
	// Mismatches counts the aggregates of all load tests whose timeline differs from the source.
	Mismatches int    `json:"mismatches"`
	GivenUp    string `json:"given_up,omitempty"`
}

// pricePerMillion is the price of a million operations of Standard in US dollars. It is not kept up
// to date: check the current one.
const pricePerMillion = 0.80

func (r *Report) fill(l Load, rec *history.Recorder, compared history.Comparison) {
	counts := rec.Counts()
	r.Inserted, r.Visible, r.Aggregates = counts.Committed, counts.Visible, counts.Aggregates
	r.Size, r.AskedEPS, r.LatencyMs = l.Size, l.Rate, rec.Latency()
	if took := counts.LastVisible.Sub(counts.FirstCommit).Seconds(); took > 0 {
		r.Throughput = float64(counts.Visible) / took
	}
	r.CreditsLeast, r.CreditsMost = creditsLeast*r.Inserted, creditsMost*r.Inserted
	r.CostMost = float64(r.CreditsMost) / 1e6 * pricePerMillion
	r.Lost, r.Doubled, r.Mismatches = compared.Lost, compared.Doubled, compared.Mismatches
}

// Right reports whether all events are visible, once.
func (r Report) Right() bool { return r.GivenUp == "" && r.Visible == r.Inserted && r.Mismatches == 0 }

// Print writes the report for people.
func (r Report) Print(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "events\t%d inserted, %d visible, of %d aggregates, %d bytes of data each\n", r.Inserted, r.Visible, r.Aggregates, r.Size)
	fmt.Fprintf(w, "throughput\t%.0f events/s (asked for: %s)\n", r.Throughput, asked(r.AskedEPS))
	fmt.Fprintf(w, "latency\tp50 %.1f ms, p99 %.1f ms, most %.1f ms, from before the insert to the effect\n", r.LatencyMs.P50, r.LatencyMs.P99, r.LatencyMs.Max)
	fmt.Fprintf(w, "credits\t%d to %d, reckoned for Standard\n", r.CreditsLeast, r.CreditsMost)
	fmt.Fprintf(w, "cost\tat most %.4f USD of operations, at %.2f a million as remembered\n", r.CostMost, pricePerMillion)
	fmt.Fprintf(w, "read model\t%d lost, %d doubled, %d aggregates differ\n", r.Lost, r.Doubled, r.Mismatches)
	if r.GivenUp != "" {
		fmt.Fprintf(w, "given up\t%s\n", r.GivenUp)
	}
	_ = w.Flush()
}

func asked(rate float64) string {
	if rate == 0 {
		return "as fast as it goes"
	}
	return fmt.Sprintf("%g", rate)
}
