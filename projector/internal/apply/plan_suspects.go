package apply

import (
	"context"
	"errors"
	"slices"

	"github.com/sluice-cdc/sluice/shared/envelope"
)

// judgeSuspects decides what the projection must not be given, because a process of the projector
// ended each time that it was: a condemned event is poison, and what comes behind it once its
// aggregate is parked is set aside. An event that is only suspect is first given to the projection
// alone, without an effect.
func (a *Applier) judgeSuspects(ctx context.Context, session string, t Attempt, changes []envelope.Change, results []Result) error {
	known, err := a.suspects.suspected(ctx)
	if err != nil || known == nil {
		return err
	}
	var aggregates []string
	for i := range changes {
		c := &changes[i]
		if results[i].Kind == Pending && (known.suspects[c.MessageID] != nil || known.condemned[c.Aggregate] != nil) && !slices.Contains(aggregates, c.Aggregate) {
			aggregates = append(aggregates, c.Aggregate)
		}
	}
	found, err := a.setAsideParked(ctx, session, aggregates, changes, results)
	if err != nil {
		return err
	}
	for i := range changes {
		c := &changes[i]
		switch s := known.condemned[c.Aggregate]; {
		case results[i].Kind != Pending:
		case s != nil && s.MessageID == c.MessageID:
			results[i] = ProcessEnded()
		case s != nil && found[c.Aggregate].Parked == nil && found[c.Aggregate].Of(s.Stream).Position >= s.Position:
			if err := a.suspects.acquit(ctx, s.MessageID); err != nil { // a person has had it applied, or given it up
				return err
			}
		case known.suspects[c.MessageID] != nil && c.Claim == nil && !t.Skip[c.Aggregate] && !a.calls.isLate(c.MessageID):
			if err := a.tryAlone(ctx, c); err != nil {
				return err
			}
		}
	}
	return nil
}

// tryAlone gives a suspect to the projection while that has no other event.
func (a *Applier) tryAlone(ctx context.Context, c *envelope.Change) error {
	var call *projected
	forget, err := a.suspects.tryAlone(ctx, c, func() (hangs bool) {
		_, err := a.calls.project(ctx, a.projection, c)
		if errors.Is(err, errHangs) {
			call = a.calls.unrecorded(c)
		}
		return call != nil
	})
	if call != nil {
		a.calls.keepRecord(call, forget)
	}
	return err
}

// inHand returns the changes that a plan may give to the projection.
func inHand(t Attempt, changes []envelope.Change, results []Result) (all []*envelope.Change) {
	for i := range changes {
		if results[i].Kind == Pending && changes[i].Claim == nil && !t.Skip[changes[i].Aggregate] {
			all = append(all, &changes[i])
		}
	}
	return all
}

// judgeHanging records the events from which the projection has not returned, and sets aside those
// of aggregates that are parked: they never come to the write that finds an aggregate parked. Nor
// do those that a projection in another process fails for. It returns the failures of the others.
func (a *Applier) judgeHanging(ctx context.Context, session string, t Attempt, changes []envelope.Change, results []Result, failures []Failure) ([]Failure, error) {
	var names []string
	for _, f := range failures {
		if t.Answer == nil && !errors.Is(f.Err, errHangs) {
			continue
		}
		c := &changes[f.Index]
		names = append(names, c.Aggregate)
		if call := a.calls.unrecorded(c); call != nil {
			forget, err := a.suspects.recordLong(ctx, c)
			if err != nil {
				a.calls.retryRecord(call)
				return failures, err
			}
			a.calls.keepRecord(call, forget)
		}
	}
	if _, err := a.setAsideParked(ctx, session, names, changes, results); err != nil {
		return failures, err
	}
	return slices.DeleteFunc(failures, func(f Failure) bool { return results[f.Index].Kind != Pending }), nil
}

// setAsideParked sets aside the pending events of those aggregates that are parked, without asking
// the projection for writes, and returns the guards of all of them.
func (a *Applier) setAsideParked(
	ctx context.Context, session string, names []string, changes []envelope.Change, results []Result,
) (map[string]guardState, error) {
	found, err := a.guards.read(ctx, names...)
	if err != nil {
		return nil, err
	}
	for name, s := range found {
		if s.Parked == nil {
			continue
		}
		g := &group{aggregate: name, session: session}
		for i := range changes {
			switch c := &changes[i]; {
			case c.Aggregate != name || results[i].Kind != Pending:
			case c.Position <= s.Of(c.Stream).Position:
				results[i] = Result{Kind: Duplicate}
			default:
				g.events = append(g.events, planned{index: i, change: c})
			}
		}
		if len(g.events) == 0 {
			continue
		}
		counted, err := a.setAside(ctx, g, s.Parked)
		if err != nil {
			return nil, err
		}
		if counted {
			record(results, g.decided)
		}
	}
	return found, nil
}
