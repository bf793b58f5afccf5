package operator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/sluice-cdc/sluice/projector/internal/deadletter"
	"github.com/sluice-cdc/sluice/shared/commandline"
	"github.com/sluice-cdc/sluice/shared/terminal"
)

func replayParked(ctx context.Context, p *Projector, r Request) error {
	if !r.all {
		return p.replay(ctx, r, []string{r.aggregate}, nil, nil, nil)
	}
	all, err := p.Applier.List(ctx)
	if err != nil {
		return err
	}
	names, known := make([]string, len(all)), make(map[string]bool, len(all))
	for i, a := range all {
		names[i], known[a.Name] = a.Name, true
	}
	strays, left, err := p.replayer(r.wait).Left(ctx, known)
	if err != nil {
		return err
	}
	if names = append(names, strays...); len(names)+len(left) == 0 {
		return commandline.Show(p.Out, r.json, replayed{Aggregates: []replayedAggregate{}})
	}
	return p.replay(ctx, r, names, left, nil, nil)
}

func dropParked(ctx context.Context, p *Projector, r Request) error {
	if r.overtaken {
		return dropOvertaken(ctx, p, r)
	}
	return p.replay(ctx, r, []string{r.aggregate}, nil, &deadletter.Drop{MessageID: r.message}, nil)
}

// replay replays aggregates, or repairs them with rebuild; one that fails does not prevent the
// others. What an interrupted replay has left in the queue is removed with what this one has
// applied.
func (p *Projector) replay(
	ctx context.Context, r Request, aggregates []string, left []deadletter.Outcome, drop *deadletter.Drop, rebuild deadletter.Rebuild,
) error {
	replayer := p.replayer(r.wait)
	var failures []error
	stuck := false
	outcomes := slices.Clone(left)
	shown := replayed{Aggregates: []replayedAggregate{}}
	show := func(o deadletter.Outcome) {
		entry := replayedOf(o)
		shown.Aggregates = append(shown.Aggregates, entry)
		if !r.json { // at once: the next one may take long
			entry.print(p.Out, replayer)
		}
	}
	for _, o := range left {
		show(o)
	}
	count := 0
	what := "replay"
	if rebuild != nil {
		what = "repair"
	}
	p.Progress.Set(what, 0, int64(len(aggregates)))
	done := func(o deadletter.Outcome, err error) {
		count++
		p.Progress.Set(what+" of "+o.Aggregate, int64(count), int64(len(aggregates)))
		outcomes = append(outcomes, o)
		if err != nil {
			failures = append(failures, fmt.Errorf("%s: %w", terminal.Printable(o.Aggregate), err))
			return
		}
		if o.Unknown {
			failures = append(failures, fmt.Errorf("there is no aggregate %s: neither the read model nor the dead-letter queue has anything of it; "+
				"`%s parked list` shows those that are parked", terminal.Printable(o.Aggregate), p.Program))
			return
		}
		show(o)
		stuck = stuck || o.Stuck != nil
	}
	if rebuild != nil {
		replayer.Repair(ctx, aggregates, rebuild, done)
	} else {
		replayer.Replay(ctx, aggregates, drop, done)
	}
	p.Progress.Set("remove dead letters", 0, 0)
	var err error
	shown.Removed, shown.Of, err = replayer.Remove(ctx, outcomes...)
	if shown.failed = err != nil; shown.Of > 0 || r.json {
		failures = append(failures, commandline.Show(p.Out, r.json, shown))
	}
	if err := errors.Join(append(failures, err)...); err != nil || !stuck {
		return err
	}
	return commandline.ErrFound // what is stuck has been printed
}

// replayed is the output of a replay with --json.
type replayed struct {
	Aggregates []replayedAggregate `json:"aggregates"`
	// Removed of Of dead letters that are no longer needed are out of the queue.
	Removed int `json:"removed"`
	Of      int `json:"removable"`

	failed bool // the removal
}

// replayedAggregate is the outcome for one aggregate.
type replayedAggregate struct {
	Aggregate string `json:"aggregate"`
	Applied   int    `json:"applied"`
	Known     int    `json:"applied_before"`
	Dropped   bool   `json:"dropped"`
	// Repaired is true if the effects were replaced with what the source contains.
	Repaired bool `json:"repaired,omitempty"`
	// GivenUp names the versions that are accepted as missing.
	GivenUp string `json:"given_up,omitempty"`
	// Stuck is the event that keeps the aggregate parked; null if it is no longer parked.
	Stuck *stuckEvent `json:"stuck"`
	// Foreign messages are in the dead-letter queue and not in the read model; they were left
	// there.
	Foreign int `json:"foreign"`
}

type stuckEvent struct {
	MessageID   string `json:"message_id"`
	Position    string `json:"position"`
	Reason      string `json:"reason"`
	Description string `json:"description"`
}

func replayedOf(o deadletter.Outcome) replayedAggregate {
	r := replayedAggregate{Aggregate: o.Aggregate, Applied: o.Applied, Known: o.Known, Dropped: o.Skipped, Repaired: o.Repaired, Foreign: o.Foreign}
	r.GivenUp, _, _ = strings.Cut(o.MissingVersions, ". ") // the rest describes what else could be done
	if o.Stuck != nil {
		r.Stuck = &stuckEvent{o.Stuck.MessageID, o.Stuck.Position, o.Stuck.Reason, o.Stuck.Description}
	}
	return r
}

// Print writes for people what was not printed for each aggregate.
func (r replayed) Print(out io.Writer) {
	if r.Of == 0 {
		fmt.Fprintln(out, "no aggregate is parked")
		return
	}
	fmt.Fprintf(out, "removed %d of %s from the dead-letter queue\n", r.Removed, commandline.Count(r.Of, "message"))
	if r.Removed < r.Of && !r.failed {
		fmt.Fprintln(out, "The others are locked, or too far behind in the queue. Their effects are committed; run the command again to remove them.")
	}
}

// print prints the outcome of an aggregate.
func (a replayedAggregate) print(out io.Writer, replayer *deadletter.Replayer) {
	name := terminal.Printable(a.Aggregate)
	parts := []string{commandline.Count(a.Applied, "event") + " applied"}
	if a.Known > 0 {
		parts = append(parts, commandline.Count(a.Known, "event")+" applied before")
	}
	switch {
	case a.Repaired:
		parts = []string{"repaired from its source"}
		if a.Known > 0 {
			parts = append(parts, commandline.Count(a.Known, "dead letter")+" no longer needed")
		}
	case a.GivenUp != "":
		parts = append(parts, "what never came is given up ("+terminal.Printable(a.GivenUp)+")")
	case a.Dropped:
		parts = append(parts, "the event in the way dropped")
	}
	if a.Stuck == nil {
		fmt.Fprintf(out, "%s: %s; it is not parked\n", name, strings.Join(parts, ", "))
	} else {
		fmt.Fprintf(out, "%s: %s; it stays parked: %s: %s (message %s, at position %s)\n", name, strings.Join(parts, ", "),
			terminal.Printable(a.Stuck.Reason), terminal.Printable(a.Stuck.Description),
			known(terminal.Shorten(a.Stuck.MessageID)), known(terminal.Shorten(a.Stuck.Position)))
		fmt.Fprintf(out, "Fix the cause and run the command again, or go on without that event: %s\n",
			replayer.DropCommand(a.Aggregate, a.Stuck.MessageID))
	}
	if a.Foreign > 0 {
		fmt.Fprintf(out, "%s: %d more of its messages are in the dead-letter queue that the read model does not have; they were left there\n",
			name, a.Foreign)
	}
}
