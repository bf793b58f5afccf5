package operator

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"
	"time"

	"github.com/sluice-cdc/sluice/projector/internal/apply"
	"github.com/sluice-cdc/sluice/projector/internal/deadletter"
	"github.com/sluice-cdc/sluice/shared/commandline"
	"github.com/sluice-cdc/sluice/shared/console"
)

// consoleWait is how long a replay of the console waits for a session that a projector holds.
const consoleWait = time.Minute

func consoleCommand(program string) Command {
	return Command{
		Name: "console", Takes: "[--listen ADDRESS] [--with URL] [--read-only]",
		Summary: "show the read model, what waits and what is parked in a browser on this machine; replay and drop there",
		Flags: func(f *flag.FlagSet, r *Request) {
			f.StringVar(&r.console.Listen, "listen", "127.0.0.1:8090", "the `ADDRESS`, on this machine alone")
			f.StringVar(&r.console.With, "with", "", "the `URL` of producer console on this machine, to show both sides")
			f.BoolVar(&r.readOnly, "read-only", false, "without the forms for "+program+" parked replay and drop")
		},
		Check: func(_ string, r *Request) error { return r.console.Check() },
		Do: func(ctx context.Context, p *Projector, r Request) error {
			return console.Command(ctx, r.console, p.home(r.readOnly), p.Out)
		},
	}
}

// home returns what the console reads and does: the same as the commands.
func (p *Projector) home(readOnly bool) console.Home {
	h := console.Home{
		Title: "read model " + p.Projection.Name(), View: p.view,
		Parked: func(ctx context.Context) ([]console.Parked, error) {
			all, err := p.Applier.List(ctx)
			if err != nil {
				return nil, err
			}
			return viewsOf(all), nil
		},
		Show: func(ctx context.Context, aggregate string) (console.Parked, error) {
			details, err := p.replayer(0).Show(ctx, aggregate)
			if errors.Is(err, apply.ErrNotParked) {
				return console.Parked{}, errors.New("the aggregate is not parked")
			} else if err != nil {
				return console.Parked{}, err
			}
			return parkedOf(details), nil
		},
		Trace: p.trace,
	}
	if readOnly {
		return h
	}
	h.Replay = func(ctx context.Context, aggregate string) (string, error) {
		return p.printed(func(p *Projector) error {
			return replayParked(ctx, p, Request{aggregate: aggregate, wait: consoleWait})
		})
	}
	h.Drop = func(ctx context.Context, aggregate, message string) (string, error) {
		return p.printed(func(p *Projector) error {
			return dropParked(ctx, p, Request{aggregate: aggregate, message: message, wait: consoleWait, yes: true})
		})
	}
	return h
}

// printed runs a command, and returns what it prints.
func (p *Projector) printed(command func(*Projector) error) (string, error) {
	var out bytes.Buffer
	quiet := *p
	quiet.Out, quiet.Progress = &out, nil
	err := command(&quiet)
	text := strings.TrimSpace(out.String())
	switch {
	case errors.Is(err, commandline.ErrFound):
		return "", errors.New(text)
	case err != nil && text != "":
		return "", fmt.Errorf("%s\n%w", text, err)
	}
	return text, err
}

func parkedOf(d deadletter.Details) console.Parked {
	v := viewOf(d.Aggregate)
	v.Waiting, v.Overtaken = lettersOf(d.Waiting), lettersOf(d.Overtaken)
	return v
}

func lettersOf(letters []deadletter.Letter) []console.Letter {
	shown := make([]console.Letter, len(letters))
	for i, l := range letters {
		shown[i] = console.Letter{MessageID: l.MessageID, Position: l.Position, Version: l.Version, Reason: l.Reason}
	}
	return shown
}

// view returns the status as the console shows it.
func (p *Projector) view(ctx context.Context) (v console.View) {
	status, err := p.Status(ctx)
	if err != nil {
		v.Problems = append(v.Problems, err.Error())
	}
	projection := console.Projection{
		Name: status.Projection, Database: status.Database, Parked: status.Parked, Views: status.Views,
		NewestAggregate: status.NewestAggregate, NewestPosition: status.NewestPosition, NewestTime: status.NewestTime,
	}
	switch {
	case status.WaitingSessions == nil || status.AgeSeconds == nil:
	case *status.WaitingSessions == 0:
		projection.LagMS = new(int64)
	default:
		projection.LagMS = new(*status.AgeSeconds * 1000)
	}
	if b := status.Build; b != nil {
		projection.Build = &console.Progress{State: b.State, Done: b.Events, Total: b.Total, Unit: "events", Ranges: b.Ranges, Groups: b.Aggregates, ChangedAt: b.Changed}
	}
	v.Projections = []console.Projection{projection}
	v.Queue = &console.Queue{Entity: status.Entity, Sessions: status.WaitingSessions, DeadLettered: status.DeadLettered, Note: status.DeadLetteredNote}
	return v
}

// trace returns what the guard of an aggregate and the dead-letter queue know of it.
func (p *Projector) trace(ctx context.Context, aggregate string) (t console.Trace, err error) {
	ctx, cancel := p.bounded(ctx)
	defer cancel()
	found, err := p.Applier.Guards(ctx, aggregate)
	if err != nil {
		return t, err
	}
	guard, known := found[aggregate]
	if !known {
		return t, errors.New("the read model has nothing of this aggregate: no event of it is applied, or the name is another one")
	}
	t.Guard = "The read model has applied its events up to the last one below. Earlier ones are not recorded one by one."
	if guard.Position != "" {
		t.Steps = append(t.Steps, console.Step{Version: guard.Version, Position: guard.Position, State: "applied"})
	}
	if guard.Parked == nil {
		return t, nil
	}
	details, err := p.replayer(0).Show(ctx, aggregate)
	if err != nil {
		return t, err
	}
	for _, l := range details.Waiting {
		t.Steps = append([]console.Step{{Version: l.Version, Position: l.Position, State: "parked"}}, t.Steps...)
	}
	return t, nil
}
