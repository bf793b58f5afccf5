package report

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/sluice-cdc/sluice/shared/terminal"
	"github.com/sluice-cdc/sluice/tests/internal/history"
)

// shown is how many differences are printed.
const shown = 10

// Outcome is what the summary shows beside the report's numbers.
type Outcome struct {
	Report
	// Steady is the latency of the events that no failover delayed.
	Steady history.Latency
	// Right is how many of the Aggregates came out exactly right.
	Right int
	// Unexpected is how many things are in the read model that should not be there at all.
	Unexpected int
	// Repeated is how many messages the broker took a second time; the guard in the read model
	// drops their effect.
	Repeated int64
	// Stale is how many messages came from a leader after its successor's first; the guard and the
	// duplicate detection make them harmless.
	Stale int64
	// Followed means that the events are changes by other programs, to documents that were
	// compared.
	Followed bool
	// Documents means that documents were compared, and not aggregates.
	Documents bool
	// Checked describes what the read model was compared with.
	Checked string
	// Differences, Violations and DeadLetters are printed, the first few of each.
	Differences []string
	Violations  []string
	DeadLetters []string
	// SourceGaps are events that were inserted and are not in the source. The services are not to
	// blame for them.
	SourceGaps []string
	// Failure is why the run is no success although nothing differs; empty otherwise.
	Failure string
	// Logs is the folder of the services' logs and their last complaints, after a failure.
	Logs string
}

// OK reports whether everything came out exactly right.
func (o Outcome) OK() bool {
	return o.Failure == "" && len(o.SourceGaps) == 0 && len(o.Violations) == 0 && o.Mismatches == 0 && o.Lost == 0 && o.DuplicateEffects == 0 && o.OutOfOrder == 0
}

// Summary writes the outcome for people.
func (o Outcome) Summary(w io.Writer) {
	var b strings.Builder
	row := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "  %-14s "+format+"\n", append([]any{name}, args...)...)
	}

	unit, came := "aggregates", "inserted"
	if o.Followed {
		unit, came = "documents", "seen"
	} else if o.Documents {
		unit = "documents"
	}
	b.WriteString("\n")
	switch {
	case o.Followed && o.Aggregates == 0 && o.Failure != "":
		b.WriteString("  NOT COMPARED\n\n")
	case o.OK() && o.Followed && o.Aggregates == 0:
		fmt.Fprintf(&b, "  NOTHING TO COMPARE: no document of the collection changed (%s)\n\n", o.Checked)
	case o.OK():
		fmt.Fprintf(&b, "  EXACTLY RIGHT: %d of %d %s (%s)\n\n", o.Right, o.Aggregates, unit, o.Checked)
	case o.Mismatches == 0:
		fmt.Fprintf(&b, "  FAILED, although %d of %d %s are right in the end (%s)\n\n", o.Right, o.Aggregates, unit, o.Checked)
	default:
		fmt.Fprintf(&b, "  NOT RIGHT: %d of %d %s are%s (%s)\n\n", o.Right, o.Aggregates, unit, o.tooMany(), o.Checked)
	}
	row(unit, "%d of %d right", o.Right, o.Aggregates)
	if aside := min(o.Lost, max(o.DeadLettered, 0)); aside > 0 {
		row("lost", "%d, beside %d that are set aside: dead-lettered, and there for a replay", o.Lost-aside, aside)
	} else {
		row("lost", "%d", o.Lost)
	}
	row("duplicated", "%d", o.DuplicateEffects)
	if !o.Followed { // others' documents do not say their order
		row("reordered", "%d", o.OutOfOrder)
	}
	row("events", "%d %s, %s published, %d applied", o.EventsInserted, came, number(o.EventsPublished), o.EventsApplied)
	if o.DuplicatesPublished != 0 {
		row("republished", "%s, dropped by duplicate detection", number(o.DuplicatesPublished))
	}
	if o.Repeated != 0 {
		row("repeated", "%d messages taken by the broker again, for the guard to drop", o.Repeated)
	}
	if o.Stale != 0 {
		row("stale leader", "%d messages after its successor's first", o.Stale)
	}
	if o.DeadLettered != 0 || o.Parked != 0 {
		row("set aside", "%s dead-lettered, %s parked", number(o.DeadLettered), number(o.Parked))
	}
	for i, f := range o.Failovers {
		name := ""
		if i == 0 {
			name = "failovers"
		}
		row(name, "%s", f.sentence())
	}
	if !o.Followed {
		row("throughput", "%.0f events/s", o.ThroughputEPS)
		if len(o.Failovers) > 0 {
			row("latency", "%s, outside the failovers", distribution(o.Steady))
			row("", "%s, with them", distribution(o.LatencyMs))
		} else {
			row("latency", "%s, from commit to visible", distribution(o.LatencyMs))
		}
	}
	row("memory", "leader %.0f MB, standby %.0f MB, projector %.0f MB (peak)", o.RSSMb.Leader, o.RSSMb.Standby, o.RSSMb.Projector)
	took := (time.Duration(o.ElapsedMs) * time.Millisecond).Round(100 * time.Millisecond)
	if o.Followed {
		row("took", "%s", took)
	} else {
		row("took", "%s, seed %d", took, o.Seed)
	}
	if o.Failure != "" {
		fmt.Fprintf(&b, "\n  %s\n", o.Failure)
	}
	list(&b, "Missing in the source itself: what was inserted there is gone, rolled back by an election or removed by another program. "+
		"It could not be published", o.SourceGaps)
	list(&b, "What differs", o.Differences)
	list(&b, "Promises broken on the way", o.Violations)
	list(&b, "Dead-lettered", o.DeadLetters)
	if o.Logs != "" {
		fmt.Fprintf(&b, "\n%s\n", o.Logs)
	}
	b.WriteString("\n")
	_, _ = io.WriteString(w, b.String())
}

// tooMany reports what the read model has too much, such as events of another stream in the same
// topic.
func (o Outcome) tooMany() string {
	if o.Unexpected > 0 {
		return fmt.Sprintf(", and %d should not be there at all", o.Unexpected)
	}
	return ""
}

func (f Failover) sentence() string {
	after := func(ms int64) string { return fmt.Sprintf("%.2f s", float64(ms)/1000) }
	s := fmt.Sprintf("%s at %s: the next leader published %s after", f.Kind, after(f.AtMs), after(f.FirstPublishAfterMs))
	if f.MeasuredBy == ByTakeover {
		s = fmt.Sprintf("%s at %s: the next leader was ready %s after (nothing was left to publish)", f.Kind, after(f.AtMs), after(f.LeadsAfterMs))
	}
	return s
}

func list(b *strings.Builder, title string, lines []string) {
	if len(lines) == 0 {
		return
	}
	fmt.Fprintf(b, "\n  %s:\n", title)
	for i, line := range lines {
		if i == shown {
			fmt.Fprintf(b, "    … and %d more\n", len(lines)-shown)
			break
		}
		fmt.Fprintf(b, "    %s\n", terminal.Printable(line))
	}
}

func number(n int64) string {
	if n == Unknown {
		return "an unknown number"
	}
	return fmt.Sprint(n)
}

func distribution(l history.Latency) string {
	return fmt.Sprintf("p50 %s, p99 %s, max %s", ms(l.P50), ms(l.P99), ms(l.Max))
}

func ms(v float64) string {
	if v < 1000 {
		return fmt.Sprintf("%.1f ms", v)
	}
	return fmt.Sprintf("%.1f s", v/1000)
}
