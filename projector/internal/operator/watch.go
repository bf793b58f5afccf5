package operator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/sluice-cdc/sluice/shared/commandline"
	"github.com/sluice-cdc/sluice/shared/retry"
	"github.com/sluice-cdc/sluice/shared/telemetry"
)

// Watched is what waits for a projection, whether or not a projector runs: the counts of its own
// subscription or queue and of its read model. A pointer that is nil means unknown, and the note
// beside it is the reason.
type Watched struct {
	Projection string `json:"projection"`
	Entity     string `json:"entity"`
	// Parked is the number of parked aggregates.
	Parked     *int64 `json:"parked"`
	ParkedNote string `json:"parked_note,omitempty"`
	// WaitingSessions counts the sessions with messages.
	WaitingSessions *int64 `json:"waiting_sessions"`
	WaitingNote     string `json:"waiting_note,omitempty"`
	// DeadLetters counts the messages in the dead-letter queue.
	DeadLetters     *int64 `json:"dead_letters"`
	DeadLettersNote string `json:"dead_letters_note,omitempty"`
}

// logged is how long a record of the log needs to be collected. Container Apps may lose the output
// of a container that ends at once.
const logged = 20 * time.Second

// Watch writes what waits as one record of the log, the message [telemetry.WatchMessage], and waits
// until it is collected. Alerts use the record when no projector is running that could report. If a
// service does not answer, the record has the counts of the others, and the error is returned as
// well.
func (p *Projector) Watch(ctx context.Context) error {
	w, err := p.watched(ctx)
	telemetry.LogWatched(telemetry.Logger(p.Out, slog.LevelInfo, "projector", telemetry.Instance()), w)
	_ = retry.Sleep(ctx, logged)
	return err
}

// Drained prints whether the subscription or queue can be deleted: no message waits in it or in its
// dead-letter queue, and no aggregate is parked, whose later events would then have no place.
// Errors: [commandline.ErrFound] if something is left or not known, after it was printed.
func (p *Projector) Drained(ctx context.Context, asJSON bool) error {
	w, err := p.watched(ctx)
	d := drained{Watched: w, Drained: err == nil}
	for _, c := range []struct {
		n                    *int64
		note, one, more, way string
	}{
		{w.WaitingSessions, w.WaitingNote, "session", " with messages", "let the projectors work them off"},
		{w.DeadLetters, w.DeadLettersNote, "dead letter", "", p.Program + " parked replay --all, or inspect and remove them"},
		{w.Parked, w.ParkedNote, "parked aggregate", "", p.Program + " parked replay --all, or " + p.Program + " parked drop"},
	} {
		if c.n != nil && *c.n == 0 {
			continue
		}
		d.Drained = false
		d.Left = append(d.Left, fmt.Sprintf("%s. To go on: %s", countText(c.n, c.one, c.more, c.note), c.way))
	}
	err = errors.Join(err, commandline.Show(p.Out, asJSON, d))
	if err == nil && !d.Drained {
		return commandline.ErrFound
	}
	return err
}

// drained is the output of status --drained with --json.
type drained struct {
	Watched
	Drained bool `json:"drained"`
	// Left lists what is left, with the next step.
	Left []string `json:"left"`
}

// Print writes it for people.
func (d drained) Print(out io.Writer) {
	for _, line := range d.Left {
		fmt.Fprintln(out, line)
	}
	if d.Drained {
		fmt.Fprintf(out, "%s is empty, its dead-letter queue too, and no aggregate of %s is parked\n", d.Entity, d.Projection)
	}
}

// watched counts what waits. It leaves out the newest position, for which every position record is
// read.
func (p *Projector) watched(ctx context.Context) (Watched, error) {
	s := Status{Projection: p.Projection.Name(), Entity: p.Entity.String()}
	err := errors.Join(p.countParked(ctx, &s), p.waiting(ctx, &s), p.deadLettered(ctx, &s))
	w := Watched{
		Projection: s.Projection, Entity: s.Entity,
		Parked: s.Parked, ParkedNote: s.ParkedNote,
		WaitingSessions: s.WaitingSessions, WaitingNote: s.WaitingNote,
		DeadLettersNote: s.DeadLetteredNote,
	}
	if s.DeadLettered != nil {
		w.DeadLetters = new(int64)
		for _, n := range s.DeadLettered {
			*w.DeadLetters += n
		}
	}
	return w, err
}

func (p *Projector) countParked(ctx context.Context, s *Status) error {
	ctx, cancel := p.bounded(ctx)
	defer cancel()
	parked, err := p.Applier.Count(ctx)
	if err != nil {
		s.ParkedNote = "it could not be counted in " + p.Applier.GuardCollection()
		return err
	}
	s.Parked = &parked
	return nil
}
