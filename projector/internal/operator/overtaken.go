package operator

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/sluice-cdc/sluice/projector/internal/deadletter"
	"github.com/sluice-cdc/sluice/shared/commandline"
	"github.com/sluice-cdc/sluice/shared/terminal"
)

// overtakenEvents are the events that were overtaken, as `parked drop --overtaken` shows them
// before it changes anything.
type overtakenEvents struct {
	Events     int                 `json:"events"`
	Aggregates []deadletter.Passed `json:"aggregates"`

	program string
}

// dropOvertaken shows the events that were overtaken. Given their number, it drops them and replays
// their aggregates.
func dropOvertaken(ctx context.Context, p *Projector, r Request) error {
	all, err := p.Applier.List(ctx)
	if err != nil {
		return err
	}
	replayer := p.replayer(r.wait)
	passed, err := replayer.Overtaken(ctx, all, r.yes)
	if err != nil {
		return err
	}
	shown := overtakenEvents{Aggregates: passed, program: p.Program}
	names := make([]string, len(passed))
	for i, a := range passed {
		names[i], shown.Events = a.Aggregate, shown.Events+len(a.Events)
	}
	if !r.yes {
		return commandline.Show(p.Out, r.json, shown)
	}
	if r.count != shown.Events {
		return fmt.Errorf("%s would be given up now, not %d, so nothing was done; check again: %s parked drop --overtaken",
			shown.text(), r.count, p.Program)
	}
	p.Progress.Set("remove dead letters", 0, 0)
	removed, err := replayer.GiveUp(ctx, passed)
	if err != nil {
		return fmt.Errorf("%w; %d of %s were given up: run the command without --count to see what is left", err, removed, commandline.Count(r.count, "event"))
	}
	if !r.json {
		fmt.Fprintf(p.Out, "gave up %d of %s\n", removed, commandline.Count(r.count, "event"))
	}
	return p.replay(ctx, r, names, nil, nil, nil) // which is stuck if another receiver has locked one of them
}

func (o overtakenEvents) text() string {
	return commandline.Count(o.Events, "event") + " of " + commandline.Count(len(o.Aggregates), "aggregate")
}

// Print writes for people which events would be dropped.
func (o overtakenEvents) Print(out io.Writer) {
	if o.Events == 0 {
		fmt.Fprintln(out, "no event of a parked aggregate was overtaken")
		return
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "AGGREGATE\tPOSITION\tVERSION\tREASON")
	for _, a := range o.Aggregates {
		for _, l := range a.Events {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", terminal.Printable(a.Aggregate), known(Request{}.shorten(l.Position)), number(l.Version), terminal.Printable(l.Reason))
		}
	}
	_ = w.Flush()
	fmt.Fprintf(out, "\n%s: the broker dead-lettered them, later ones were applied, and it is not known whether these were.\n"+
		"Compare the read model with the source first: %[2]s verify. To give all of them up, for good, and go on:\n"+
		"%[2]s parked drop --overtaken --count %[3]d --yes\n", o.text(), o.program, o.Events)
}
