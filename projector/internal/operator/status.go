package operator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/sluice-cdc/sluice/projector/internal/build"
	"github.com/sluice-cdc/sluice/shared/commandline"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/shared/mongodb"
	"github.com/sluice-cdc/sluice/shared/terminal"
)

// mostPeeked is how many dead-lettered messages, and how many sessions, are counted.
const mostPeeked = 5000

// Status is a projection's state in its read model and Service Bus. A pointer that is nil means
// unknown, and the note beside it is the reason.
type Status struct {
	Projection string `json:"projection"`
	Database   string `json:"database"`
	Entity     string `json:"entity"`
	// Parked is the number of parked aggregates.
	Parked     *int64 `json:"parked"`
	ParkedNote string `json:"parked_note,omitempty"`
	// NewestPosition is the highest one applied of any aggregate; NewestTime is the cluster time in
	// it.
	NewestAggregate string `json:"newest_aggregate"`
	NewestPosition  string `json:"newest_position"`
	NewestTime      string `json:"newest_time"`
	NewestNote      string `json:"newest_note,omitempty"`
	// AgeSeconds is the time since NewestTime, by the clock of the read model's server: its cluster
	// time stands still while nothing is written. Without waiting sessions it is how long nothing
	// has arrived; with some it is the lag.
	AgeSeconds *int64 `json:"age_seconds"`
	// Build is the read model's build; nil if it has none.
	Build *BuildStatus `json:"build,omitempty"`
	// Views are the collections that the views of the projection show, by view.
	Views map[string]string `json:"views,omitempty"`
	// WaitingSessions counts the sessions with messages: aggregates that wait, or are being
	// applied.
	WaitingSessions *int64 `json:"waiting_sessions"`
	WaitingNote     string `json:"waiting_note,omitempty"`
	// DeadLettered counts messages by reason.
	DeadLettered     map[string]int64 `json:"dead_lettered"`
	DeadLetteredNote string           `json:"dead_lettered_note,omitempty"`
}

// BuildStatus is how far a build is.
type BuildStatus struct {
	State      string    `json:"state"` // building, failed, built or dropped
	Ranges     int64     `json:"ranges"`
	Aggregates int64     `json:"aggregates"`
	Events     int64     `json:"events"`
	Total      int64     `json:"total"`   // about how many the source had at the last range
	Changed    time.Time `json:"changed"` // by the last range
}

// Status reads the state and changes nothing. If a service does not answer, the error comes with
// the state of the others.
func (p *Projector) Status(ctx context.Context) (Status, error) {
	s := Status{Projection: p.Projection.Name(), Database: p.Database.Name(), Entity: p.Entity.String()}
	return s, errors.Join(p.readModel(ctx, &s), p.waiting(ctx, &s), p.deadLettered(ctx, &s))
}

func (p *Projector) readModel(ctx context.Context, s *Status) error {
	ctx, cancel := p.bounded(ctx)
	defer cancel()
	now, err := mongodb.Now(ctx, p.Database)
	if err != nil {
		s.ParkedNote, s.NewestNote = "MongoDB does not answer", "MongoDB does not answer"
		return err
	}
	if err := p.countParked(ctx, s); err != nil {
		return err
	}
	if err := p.version(ctx, s); err != nil {
		return err
	}
	// Positions have no index, since every write would have to update it. For a large collection
	// the newest position stays unknown.
	s.NewestAggregate, s.NewestPosition, err = p.Applier.Newest(ctx)
	switch at := envelope.TokenTime(s.NewestPosition); {
	case err != nil && ctx.Err() != nil:
		s.NewestNote = "finding it took too long: it reads all of " + p.Applier.GuardCollection()
		return nil
	case err != nil:
		s.NewestNote = "it could not be read"
		return err
	case s.NewestPosition == "":
		s.NewestNote = "nothing is applied yet"
	case at.IsZero():
		s.NewestNote = "its position contains no time"
	default:
		s.NewestTime = time.Unix(int64(at.T), 0).UTC().Format(time.RFC3339)
		if !now.IsZero() {
			s.AgeSeconds = new(max(now.Unix()-int64(at.T), 0))
		}
	}
	return nil
}

// version reads how the version was built, and what the views show.
func (p *Projector) version(ctx context.Context, s *Status) error {
	state, err := build.Read(ctx, p.Database, p.Projection)
	if err != nil {
		return err
	}
	if state != nil {
		s.Build = &BuildStatus{State: state.State, Ranges: state.Ranges, Aggregates: state.Aggregates, Events: state.Events, Total: state.Total, Changed: state.Changed.UTC()}
	}
	all, err := build.Views(p.Projection)
	if errors.Is(err, build.ErrNotDeclared) {
		return nil
	}
	if err == nil {
		s.Views, err = build.Shown(ctx, p.Database, all)
	}
	if errors.Is(err, build.ErrTaken) || mongodb.HasCode(err, mongodb.Unauthorized, mongodb.AtlasError) {
		return nil // no collections, or the user may not list them
	}
	return err
}

func (p *Projector) waiting(ctx context.Context, s *Status) error {
	ctx, cancel := p.bounded(ctx)
	defer cancel()
	pager, n := p.Entity.Sessions(p.Bus), int64(0)
	for pager.More() && n < mostPeeked {
		page, err := pager.NextPage(ctx)
		if err != nil {
			s.WaitingNote = "Service Bus does not list the sessions"
			return fmt.Errorf("list sessions of %s: %w", p.Entity, err)
		}
		n += int64(len(page.Sessions))
	}
	if n >= mostPeeked {
		s.WaitingNote = "or more"
	}
	s.WaitingSessions = &n
	return nil
}

func (p *Projector) deadLettered(ctx context.Context, s *Status) error {
	ctx, cancel := p.bounded(ctx)
	defer cancel()
	found, n := make(map[string]int64), 0
	err := p.peek(ctx, deadLetters, func(m *azservicebus.ReceivedMessage) bool {
		reason := "without a reason"
		if m.DeadLetterReason != nil && *m.DeadLetterReason != "" {
			reason = *m.DeadLetterReason
		}
		found[reason]++
		n++
		return n < mostPeeked
	})
	if err != nil {
		s.DeadLetteredNote = "the dead-letter queue cannot be read"
		return err
	}
	if n >= mostPeeked {
		s.DeadLetteredNote = "of the first " + fmt.Sprint(mostPeeked)
	}
	s.DeadLettered = found
	return nil
}

// Print writes the status for people.
func (s Status) Print(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	line := func(name, value string) { fmt.Fprintf(w, "%s\t%s\n", name, terminal.Printable(value)) }
	line("projection", s.Projection+", in database "+s.Database)
	line("receives from", s.Entity)
	if b := s.Build; b != nil {
		events := commandline.Count(b.Events, "event")
		if b.State == build.Building && b.Total > 0 {
			events += fmt.Sprintf(" (of about %d)", b.Total)
		}
		line("build", fmt.Sprintf("%s: %s of %s in %s, at %s", b.State, events, commandline.Count(b.Aggregates, "aggregate"),
			commandline.Count(b.Ranges, "range"), b.Changed.Format(time.RFC3339)))
	}
	for _, view := range slices.Sorted(maps.Keys(s.Views)) {
		line("readers see", view+" of "+s.Views[view])
	}
	line("parked", countText(s.Parked, "aggregate", "", s.ParkedNote))
	switch {
	case s.NewestPosition == "":
		line("newest applied", s.NewestNote)
	case s.NewestTime == "":
		line("newest applied", fmt.Sprintf("position %s of %s (%s)", terminal.Shorten(s.NewestPosition), s.NewestAggregate, s.NewestNote))
	default:
		line("newest applied", fmt.Sprintf("%s, of aggregate %s", s.NewestTime, s.NewestAggregate))
	}
	line("waiting", countText(s.WaitingSessions, "session", " with messages", s.WaitingNote))
	switch {
	case s.AgeSeconds == nil || s.WaitingSessions == nil:
		line("lag", "unknown")
	case *s.WaitingSessions == 0:
		line("lag", fmt.Sprintf("none: no message waits; the newest change applied is %d s old", *s.AgeSeconds))
	default:
		line("lag", fmt.Sprintf("at most %d s: messages wait, and the newest change applied is that old", *s.AgeSeconds))
	}
	line("dead-lettered", reasonsText(s.DeadLettered, s.DeadLetteredNote))
	_ = w.Flush()
}

func countText(n *int64, one, more, note string) string {
	switch {
	case n == nil:
		return "unknown: " + note
	case note != "":
		return commandline.Count(*n, one) + more + ", " + note
	}
	return commandline.Count(*n, one) + more
}

func reasonsText(reasons map[string]int64, note string) string {
	switch {
	case reasons == nil:
		return "unknown: " + note
	case len(reasons) == 0:
		return "0 messages"
	}
	var all []string
	for _, reason := range slices.Sorted(maps.Keys(reasons)) {
		all = append(all, fmt.Sprintf("%d %s", reasons[reason], reason))
	}
	text := strings.Join(all, ", ")
	if note != "" {
		text += " (" + note + ")"
	}
	return text
}
