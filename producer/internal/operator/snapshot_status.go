package operator

import (
	"context"
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/sluice-cdc/sluice/producer/internal/checkpoint"
	"github.com/sluice-cdc/sluice/shared/terminal"
)

// SnapshotStatus is how far a snapshot has come that is published within the stream.
type SnapshotStatus struct {
	// Reason is initial (it begins the stream), lost (it replaces lost history), requested (by an
	// operator, of all documents), or aggregates (of single ones).
	Reason  string    `json:"reason"`
	BeganAt time.Time `json:"began_at"`
	// Paused reports that an operator has paused it.
	Paused bool `json:"paused"`
	// Documents is how many are published, of about Estimated.
	Documents int64 `json:"documents"`
	Estimated int64 `json:"estimated"`
	// PerSecond is how many documents per second were published since it began or was last resumed.
	PerSecond float64 `json:"documents_per_second"`
	// SecondsToGo is how long the rest takes at this rate; null while that is unknown.
	SecondsToGo *int64 `json:"seconds_to_go"`
	// SuppressionSeconds is for how long changes of documents that it has not reached have been
	// left out; null if none are.
	SuppressionSeconds *int64 `json:"suppression_seconds"`
}

// SnapshotOf returns the status of a snapshot, nil without one.
func SnapshotOf(b *checkpoint.Backfill, now time.Time) *SnapshotStatus {
	if b == nil || b.Done {
		return nil
	}
	s := &SnapshotStatus{Reason: string(b.Mode), BeganAt: b.BeganAt, Paused: b.Paused, Documents: b.Rows, Estimated: b.Estimate}
	if perSecond, rest, ok := b.Pace(now); ok {
		s.PerSecond, s.SecondsToGo = math.Round(10*perSecond)/10, new(int64(rest.Seconds()))
	}
	if b.Suppresses() {
		s.SuppressionSeconds = new(int64(now.Sub(b.BeganAt).Seconds()))
	}
	return s
}

// text describes the snapshot in one line.
func (s *SnapshotStatus) text() string {
	var parts []string
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	add("%d of about %d documents since %s (%s)", s.Documents, s.Estimated, s.BeganAt.Format(time.RFC3339), s.Reason)
	switch {
	case s.Paused:
		add("PAUSED: `producer snapshot resume` continues it")
	case s.SecondsToGo == nil:
		add("the rate is not known yet")
	default:
		add("%.1f a second, about %s to go", s.PerSecond, time.Duration(*s.SecondsToGo)*time.Second)
	}
	if n := s.SuppressionSeconds; n != nil {
		add("changes of documents that it has not reached have waited for up to %s", time.Duration(*n)*time.Second)
	}
	return strings.Join(parts, "; ")
}

// SnapshotReport is what `snapshot status` prints.
type SnapshotReport struct {
	Stream string `json:"stream"`
	// Leads reports whether a replica holds the lease.
	Leads bool `json:"leads"`
	// Snapshot is that which is being published; null without one.
	Snapshot *SnapshotStatus `json:"snapshot"`
	// Request is the last request of an operator; null without one.
	Request *checkpoint.Request `json:"request"`
}

// SnapshotStatus reads the state of the stream's snapshot and the last request. It changes nothing.
func (s *Stream) SnapshotStatus(ctx context.Context) (SnapshotReport, error) {
	snapshot, err := s.read(ctx)
	if err != nil {
		return SnapshotReport{}, err
	}
	request, err := s.lastRequest(ctx)
	if err != nil {
		return SnapshotReport{}, err
	}
	return SnapshotReport{
		Stream: s.Name, Leads: snapshot.Leased, Snapshot: SnapshotOf(snapshot.Record.Progress.Backfill, time.Now()), Request: request,
	}, nil
}

func (s *Stream) lastRequest(ctx context.Context) (*checkpoint.Request, error) {
	ctx, cancel := s.withTimeout(ctx)
	defer cancel()
	request, _, err := s.checkpoint().LastRequest(ctx)
	return request, err
}

// Print writes the report as text.
func (r SnapshotReport) Print(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	line := func(name, value string) { fmt.Fprintf(w, "%s\t%s\n", name, terminal.Printable(value)) }
	line("stream", r.Stream)
	if r.Snapshot == nil {
		line("snapshot", "none is being published")
	} else {
		line("snapshot", r.Snapshot.text())
	}
	if r.Request != nil {
		line("request", requestText(*r.Request))
	}
	if !r.Leads {
		line("leader", "none: start a producer")
	}
	_ = w.Flush()
}

// requestText describes a request and what became of it.
func requestText(r checkpoint.Request) string {
	text := fmt.Sprintf("%s, of %s at %s", r.Command, r.By, r.At.Format(time.RFC3339))
	switch {
	case r.Command == checkpoint.RequestWithdrawn:
		return text
	case r.Waiting() && r.TakenBy != "":
		return text + ": taken by " + r.TakenBy + ", and not carried out yet"
	case r.Waiting():
		return text + ": NOT TAKEN by a leader yet; `producer snapshot stop` withdraws it"
	case r.Refused != "":
		return text + ": REFUSED by " + r.AnsweredBy + ": " + r.Refused
	}
	return text + ": done by " + r.AnsweredBy
}
