package operator

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/sluice-cdc/sluice/projector/internal/apply"
	"github.com/sluice-cdc/sluice/projector/internal/deadletter"
	"github.com/sluice-cdc/sluice/shared/commandline"
	"github.com/sluice-cdc/sluice/shared/console"
	"github.com/sluice-cdc/sluice/shared/settings"
	"github.com/sluice-cdc/sluice/shared/terminal"
)

// parkedCommands returns the commands about parked aggregates.
func parkedCommands(program string) []Command {
	waiting := func(f *flag.FlagSet, r *Request) {
		f.DurationVar(&r.wait, "wait", time.Minute, "how `long` to wait for the session, while a projector holds it")
	}
	named := func(operand string, r *Request) error {
		if r.aggregate = operand; operand == "" {
			return fmt.Errorf("needs the aggregate; `%s parked list` shows those that are parked", program)
		}
		return nil
	}
	return []Command{
		{
			Name: "parked list", Takes: "[--wide] [--json]", Summary: "the parked aggregates, those parked the longest first",
			Flags: func(f *flag.FlagSet, r *Request) {
				asJSON(f, r)
				f.BoolVar(&r.wide, "wide", false, "positions whole, not shortened")
			},
			Do: listParked,
		},
		{
			Name: "parked show", Takes: "AGGREGATE [--json]", Operand: true,
			Summary: "why it is parked, and which of its events wait in the dead-letter queue", Flags: asJSON, Check: named, Do: showParked,
		},
		{
			Name: "parked replay", Takes: "AGGREGATE|--all [--wait 1m] [--json]", Operand: true,
			Summary: "apply the events that wait, in order, and go on as usual; can be given again at any time",
			Flags: func(f *flag.FlagSet, r *Request) {
				asJSON(f, r)
				waiting(f, r)
				f.BoolVar(&r.all, "all", false, "every parked aggregate")
			},
			Check: func(operand string, r *Request) error {
				if r.aggregate = operand; (operand == "") != r.all {
					return errors.New("needs either an aggregate or --all")
				}
				return settings.AtLeast("--wait", r.wait, 0)
			},
			Do: replayParked,
		},
		{
			Name: "parked park", Takes: "AGGREGATE --reason TEXT [--json]", Operand: true,
			Summary: "set the aggregate aside, as if one of its events could not be applied: its events wait in the dead-letter queue\n" +
				"\tuntil they are replayed; for an aggregate that does harm in a way of its own",
			Flags: func(f *flag.FlagSet, r *Request) {
				asJSON(f, r)
				f.StringVar(&r.reason, "reason", "", "the reason, as `TEXT` for other operators")
			},
			Check: func(operand string, r *Request) error {
				if err := named(operand, r); err != nil {
					return err
				}
				if strings.TrimSpace(r.reason) == "" {
					return errors.New("needs --reason: what is wrong with the aggregate")
				}
				return nil
			},
			Do: parkByOperator,
		},
		{
			Name: "parked drop", Takes: "AGGREGATE [--message ID] --yes | --overtaken [--count N --yes] [--wait 1m] [--json]", Operand: true,
			Summary: "the same, without the event that parked it, or without the versions that are missing: they are given up for good;\n" +
				"\twith --overtaken without all events that later ones have overtaken: first it shows them",
			Flags: func(f *flag.FlagSet, r *Request) {
				asJSON(f, r)
				waiting(f, r)
				f.BoolVar(&r.yes, "yes", false, "give up for good")
				f.StringVar(&r.message, "message", "", "the `ID` of the message in the way, as parked show prints it: if it is another one by now, nothing is done")
				f.BoolVar(&r.overtaken, "overtaken", false, "the events of all parked aggregates that the broker dead-lettered and that were overtaken")
				f.IntVar(&r.count, "count", 0, "how `many` events these are, as shown: with another number nothing is done")
			},
			Check: func(operand string, r *Request) error {
				switch {
				case r.overtaken && (operand != "" || r.message != ""):
					return errors.New("needs either an aggregate or --overtaken")
				case r.overtaken && r.yes != (r.count > 0):
					return errors.New("needs --count and --yes together; without both, --overtaken shows what would be given up")
				case r.overtaken:
					return settings.AtLeast("--wait", r.wait, 0)
				case r.count != 0:
					return errors.New("takes --count with --overtaken alone")
				}
				if err := named(operand, r); err != nil {
					return err
				}
				if !r.yes {
					return fmt.Errorf("needs --yes: it gives up for good the event in the way, or the versions that are missing; check first: %s",
						terminal.Paste(r.aggregate, program, "parked show"))
				}
				return settings.AtLeast("--wait", r.wait, 0)
			},
			Do: dropParked,
		},
	}
}

func (p *Projector) replayer(wait time.Duration) *deadletter.Replayer {
	return &deadletter.Replayer{
		Program: p.Program, Applier: p.Applier, Client: p.Bus, Entity: p.Entity,
		Redeem: p.Redeem,
		Wait:   wait, ApplyTimeout: p.ApplyTimeout, SettleTimeout: p.SettleTimeout,
	}
}

// viewOf returns a parked aggregate as the console and --json show it.
func viewOf(a apply.Aggregate) console.Parked {
	return console.Parked{
		Aggregate: a.Name, Since: a.Since.UTC(), Reason: a.Reason, Description: a.Description, MessageID: a.MessageID,
		Position: a.Record.Position, Applied: a.Position, Session: a.Session,
	}
}

func viewsOf(all []apply.Aggregate) []console.Parked {
	views := make([]console.Parked, len(all))
	for i, a := range all {
		views[i] = viewOf(a)
	}
	return views
}

func listParked(ctx context.Context, p *Projector, r Request) error {
	all, err := p.Applier.List(ctx)
	if err != nil {
		return err
	}
	if r.json {
		return commandline.WriteJSON(p.Out, viewsOf(all))
	}
	if len(all) == 0 {
		fmt.Fprintln(p.Out, "no aggregate is parked")
		return nil
	}
	w := tabwriter.NewWriter(p.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "AGGREGATE\tSINCE\tREASON\tPOSITION")
	for _, a := range all {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", terminal.Printable(a.Name), a.Since.UTC().Format(time.RFC3339), terminal.Printable(a.Reason),
			known(r.shorten(a.Record.Position)))
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("print the parked aggregates: %w", err)
	}
	fmt.Fprintf(p.Out, "\n%[1]s parked show AGGREGATE shows more; %[1]s parked replay AGGREGATE tries again. A name that a shell would read\n"+
		"otherwise goes into quotes, one that begins with - behind --. For the first one: %[2]s\n",
		p.Program, terminal.Paste(all[0].Name, p.Program, "parked show"))
	return nil
}

// shorten shortens a position, unless --wide asks for all of it.
func (r Request) shorten(position string) string {
	if r.wide {
		return position
	}
	return terminal.Shorten(position)
}

// shownLetters is how many dead letters are printed.
const shownLetters = 10

func showParked(ctx context.Context, p *Projector, r Request) error {
	replayer := p.replayer(0)
	details, err := replayer.Show(ctx, r.aggregate)
	if errors.Is(err, apply.ErrNotParked) {
		return fmt.Errorf("%s is not parked; `%s parked list` shows those that are", terminal.Printable(r.aggregate), p.Program)
	}
	if err != nil {
		return err
	}
	view := viewOf(details.Aggregate)
	if r.json {
		return commandline.WriteJSON(p.Out, parkedOf(details))
	}
	w := tabwriter.NewWriter(p.Out, 0, 0, 2, ' ', 0)
	for _, row := range [][2]string{
		{"aggregate", view.Aggregate},
		{"parked since", view.Since.Format(time.RFC3339)},
		{"reason", view.Reason},
		{"description", view.Description},
		{"event", "message " + known(view.MessageID) + ", position " + known(view.Position)},
		{"applied up to", known(view.Applied)},
		{"session", view.Session},
		{"waiting", commandline.Count(len(details.Waiting), "event") + " in the dead-letter queue"},
	} {
		fmt.Fprintf(w, "%s\t%s\n", row[0], terminal.Printable(row[1]))
	}
	listLetters(w, details.Waiting)
	if len(details.Overtaken) > 0 {
		fmt.Fprintf(w, "overtaken\t%s that the broker dead-lettered; later ones were applied, and it is not known whether these were\n",
			commandline.Count(len(details.Overtaken), "event"))
		listLetters(w, details.Overtaken)
	}
	if details.Applied > 0 {
		fmt.Fprintf(w, "applied already\t%s, left by an interrupted replay; the next replay removes them\n", commandline.Count(details.Applied, "dead letter"))
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("print the parked aggregate: %w", err)
	}
	without := "without that event"
	if view.Reason == apply.ReasonVersionGap {
		without = "without the versions that are missing, which are given up for good"
	}
	fmt.Fprintf(p.Out, "\nOnce the cause is fixed: %s\nTo go on %s: %s\n",
		terminal.Paste(view.Aggregate, p.Program, "parked replay"), without,
		replayer.DropCommand(view.Aggregate, deadletter.InTheWay(details.Aggregate, details.Waiting)))
	return nil
}

func listLetters(w io.Writer, letters []deadletter.Letter) {
	for i, l := range letters {
		if i == shownLetters {
			fmt.Fprintf(w, "\t… and %d more\n", len(letters)-i)
			break
		}
		fmt.Fprintf(w, "\t%s  version %s  %s\n", known(l.Position), number(l.Version), terminal.Printable(l.Reason))
	}
}

func known(text string) string { return terminal.Printable(cmp.Or(text, "unknown")) }

func number(n int64) string {
	if n == 0 {
		return "unknown"
	}
	return fmt.Sprint(n)
}

// parkedByOperator is the output of `parked park`.
type parkedByOperator struct {
	Aggregate string `json:"aggregate"`
	// New is set if the read model had nothing of the aggregate.
	New bool `json:"new"`

	program string
}

// parkByOperator parks an aggregate for an operator's reason.
func parkByOperator(ctx context.Context, p *Projector, r Request) error {
	found, err := p.Applier.Guards(ctx, r.aggregate)
	if err != nil {
		return err
	}
	_, known := found[r.aggregate]
	switch err := p.Applier.ParkByOperator(ctx, r.aggregate, r.reason); {
	case errors.Is(err, apply.ErrParked):
		return fmt.Errorf("%s is parked already; to see why: %s", terminal.Printable(r.aggregate), terminal.Paste(r.aggregate, p.Program, "parked show"))
	case err != nil:
		return err
	}
	return commandline.Show(p.Out, r.json, parkedByOperator{Aggregate: r.aggregate, New: !known, program: p.Program})
}

// Print implements [commandline.Show] for people.
func (d parkedByOperator) Print(out io.Writer) {
	fmt.Fprintf(out, "%s: parked; its events wait in the dead-letter queue from now on\n", terminal.Printable(d.Aggregate))
	if d.New {
		fmt.Fprintln(out, "The read model has nothing of it so far: check the name.")
	}
	fmt.Fprintf(out, "To apply them and go on: %s\n", terminal.Paste(d.Aggregate, d.program, "parked replay"))
}
