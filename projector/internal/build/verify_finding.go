package build

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-cdc/sluice/shared/commandline"
	"github.com/sluice-cdc/sluice/shared/terminal"
)

// Finding is one document that differs.
type Finding struct {
	Collection  string   `json:"collection"`
	ID          string   `json:"id"` // Extended JSON
	Differences []string `json:"differences"`
	// Why is how far the aggregates that write to it are applied, if that explains the difference.
	Why string `json:"why"`

	target target
	state  uint64 // of the document when it was read; 0 when it was not there
}

// Aggregate returns the aggregate of a document whose _id is that of its aggregate. ok is false if
// the _id has no text.
func (f Finding) Aggregate() (aggregate string, ok bool) {
	return textOf(f.target.id)
}

// kept is the largest number of differences that are compared again and reported one by one. The
// rest are counted.
const kept = 1000

// findings are the documents that still differ.
type findings struct {
	byKey               map[string]Finding
	differing, changing int64 // confirmed, or too many to keep
	confirmed           []Finding
}

func (f *findings) record(found []Finding) {
	for _, one := range found {
		if len(f.byKey) < kept {
			f.byKey[one.target.key] = one
		} else {
			f.differing++ // not compared again
		}
	}
}

// targets returns the documents that differ.
func (f *findings) targets() []target {
	all := make([]target, 0, len(f.byKey))
	for _, one := range f.byKey {
		all = append(all, one.target)
	}
	return all
}

// confirm merges the result of another comparison: it drops what is right by now, and explains the
// rest.
func (f *findings) confirm(ctx context.Context, p *pass) error {
	f.differing -= int64(len(f.confirmed)) - f.changing
	f.confirmed, f.changing = nil, 0
	before := f.byKey
	f.byKey = make(map[string]Finding, len(p.found))
	for _, one := range p.found {
		f.byKey[one.target.key] = one
		if before[one.target.key].state != one.state {
			f.changing++
			one.Why = "it changes while it is being compared: verify again when less is written to it"
		} else {
			var err error
			if one.Why, err = p.explain(ctx, p.feeds[one.target.key]); err != nil {
				return err
			}
			f.differing++
		}
		f.confirmed = append(f.confirmed, one)
	}
	return nil
}

func (f *findings) list() []Finding {
	slices.SortFunc(f.confirmed, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Collection, b.Collection), cmp.Compare(a.ID, b.ID))
	})
	return f.confirmed
}

// explained is how many aggregates of one document are examined.
const explained = 100

// explain distinguishes a document whose events are still to come from one that is wrong.
func (v *Verifier) explain(ctx context.Context, feeds map[string]int64) (string, error) {
	if len(feeds) == 0 {
		return "no event of the source writes to it: its delete is on its way, or the document is wrong", nil
	}
	aggregates := slices.Sorted(maps.Keys(feeds))
	aggregates = aggregates[:min(len(aggregates), explained)]
	stand, err := v.Guards(ctx, aggregates...)
	if err != nil {
		return "", err
	}
	const most = 3
	var parked, late []string
	unversioned := false
	for _, a := range aggregates {
		guard, known := stand[a]
		switch {
		case guard.Parked != nil:
			parked = append(parked, fmt.Sprintf("aggregate %s is parked (%s): %s", a, guard.Parked.Reason, terminal.Paste(a, v.Program, "parked show")))
		case !known || guard.Position == "":
			late = append(late, fmt.Sprintf("no event of aggregate %s has been applied: they are on their way, or lost", a))
		case feeds[a] == 0 || guard.Version == 0:
			unversioned = true
		case guard.Version < feeds[a]:
			late = append(late, fmt.Sprintf("aggregate %s is applied up to version %d of %d: the rest is on its way, or lost", a, guard.Version, feeds[a]))
		}
	}
	reasons := append(parked, late...) // those that wait for an operator come first
	switch {
	case len(reasons) > most:
		return strings.Join(reasons[:most], "; ") + "; and " + commandline.Count(len(reasons)-most, "more aggregate"), nil
	case len(reasons) > 0:
		return strings.Join(reasons, "; "), nil
	case unversioned:
		return fmt.Sprintf("its events have no versions, so how far they are applied is not known: `%s status` shows whether messages wait", v.Program), nil
	case len(feeds) > explained:
		return fmt.Sprintf("the first %d of its %d aggregates are applied; the others were not examined", explained, len(feeds)), nil
	}
	return "all its events are applied: the document is wrong", nil
}

// Print writes the report for people, with at most shown findings.
func (r Verification) Print(out io.Writer, shown int) {
	for i, f := range r.Findings {
		if i == shown {
			fmt.Fprintf(out, "… and %d more (--json has them)\n", len(r.Findings)-shown)
			break
		}
		fmt.Fprintf(out, "%s %s: %s\n    %s\n", f.Collection, terminal.Printable(f.ID), terminal.Printable(strings.Join(f.Differences, "; ")), terminal.Printable(f.Why))
	}
	if r.Sampled && r.Scanned {
		fmt.Fprintf(out, "%s does not declare what its documents are keyed by (KeyedBy of projection.Collection), so the whole source was read\n", r.Projection)
	}
	if r.Events == 0 {
		fmt.Fprintf(out, "%s holds no document: check SOURCE_MONGODB_URI, SOURCE_DATABASE and SOURCE_COLLECTION\n", r.Source)
	}
	if r.Unknown > 0 {
		fields := ""
		if len(r.Unheld) > 0 {
			fields = ", which the projection writes to " + terminal.Printable(strings.Join(r.Unheld, ", "))
		}
		fmt.Fprintf(out, "not compared, because of what the source does not hold (the time, position or id of a change)%s: %s\n",
			fields, commandline.Count(r.Unknown, "document"))
	}
	if r.Poison > 0 {
		fmt.Fprintf(out, "%s can never be applied: %s\n    `%s parked list` lists the aggregates that wait for it\n",
			commandline.Count(r.Poison, "event"), r.Refusal, r.program)
	}
	sample := ""
	if r.Sampled {
		sample = ", a sample"
	}
	fmt.Fprintf(out, "%s against %s: %s, %s%s: %s\n", r.Projection, r.Source,
		commandline.Count(r.Events, "event"), commandline.Count(r.Documents, "document"), sample, r.verdict())
}

// verdict summarises the numbers.
func (r Verification) verdict() string {
	var wrong []string
	if r.Differing > 0 {
		wrong = append(wrong, agree(r.Differing, "differs", "differ"))
	}
	if r.Changing > 0 {
		wrong = append(wrong, agree(r.Changing, "changes", "change")+" while being compared")
	}
	switch {
	case len(wrong) > 0:
		return strings.Join(wrong, ", ")
	case r.Documents == 0 && r.Unknown > 0:
		return "nothing could be compared, so nothing is verified"
	case r.Documents == 0 && r.Poison == 0:
		return "nothing was compared, so nothing is verified: the projection writes nothing for these events, and its collections are empty"
	case r.Documents == 0:
		return "nothing was compared, so nothing is verified"
	}
	return "all right"
}

// agree returns a number with the verb in the matching form.
func agree(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
