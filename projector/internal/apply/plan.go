package apply

import (
	"context"
	"fmt"

	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/envelope"
)

// prepare plans a batch, with what is known of events from which the projection does not return.
func (a *Applier) prepare(
	ctx context.Context, session string, t Attempt, changes []envelope.Change, results []Result,
) ([]*group, []Failure, error) {
	if _, err := a.setAsideParked(ctx, session, t.Redelivered, changes, results); err != nil {
		return nil, nil, err
	}
	if err := a.judgeSuspects(ctx, session, t, changes, results); err != nil {
		return nil, nil, err
	}
	leave, err := a.suspects.enter(ctx, func() []*envelope.Change { return inHand(t, changes, results) })
	if err != nil {
		return nil, nil, err
	}
	groups, decided, failures := a.plan(ctx, t, changes, results)
	leave()
	for _, g := range groups {
		g.session = session
	}
	record(results, decided)
	failures, err = a.judgeHanging(ctx, session, t, changes, results, failures)
	return groups, failures, err
}

// plan asks the projection for the writes of every pending change and groups them by aggregate, in
// order of first appearance. It decides everything that needs no database: changes at or below a
// position decided earlier in the batch are duplicates, and those that the projection refuses are
// poison. results are the earlier decisions. The failures are errors of the projection that may be
// retried.
//
// A change stays pending if another one of its aggregate must be decided first: behind a poison or
// a failure; behind a change with its own or a higher position that came before it, since a message
// that is delivered twice may be completed only once its change is committed; behind a gap of
// versions inside the batch, since only the guard shows what the first change behind the gap may
// follow; beside a row of a snapshot, which the guard may show to be a duplicate; from a change
// whose body was not fetched, or for which a program has no answer yet; above a [Gap], while those
// below it may close it; and behind a change of another stream, because a write is guarded by the
// position of one stream, and both are applied in the order in which they came.
func (a *Applier) plan(ctx context.Context, t Attempt, changes []envelope.Change, results []Result) (groups []*group, decided []decision, failures []Failure) {
	type key struct{ aggregate, stream string } // positions of two streams cannot be compared
	byAggregate := make(map[string]*group)
	reached := make(map[key]string) // the highest position decided
	blocked := make(map[string]bool)
	gap := make(map[key]string) // the position of the gap
	planning := 0
	for i := range changes {
		c := &changes[i]
		k := key{c.Aggregate, c.Stream}
		g := byAggregate[c.Aggregate]
		switch waits, gapped := gap[k]; {
		case blocked[c.Aggregate], t.Skip[c.Aggregate], t.Limit > 0 && planning >= t.Limit:
			continue
		case results[i].Kind == Poison, results[i].Kind == Parked:
			blocked[c.Aggregate] = true
			continue
		case results[i].Kind == Gap:
			gap[k] = c.Position
			continue
		case results[i].Kind != Pending:
			reached[k] = max(reached[k], c.Position)
			continue
		case g != nil && g.stream != c.Stream:
			blocked[c.Aggregate] = true
			continue
		case c.Position <= reached[k]:
			decided = append(decided, decision{i, Result{Kind: Duplicate}})
			continue
		case gapped && c.Position > waits, c.Position <= g.last():
			continue
		case c.Claim != nil, !a.ignoreVersions && g.skipsVersion(c, t.past.before(c)), !g.takes(c, a.ignoreVersions):
			blocked[c.Aggregate] = true
			continue
		}
		var writes []projection.Write
		var err error
		switch {
		case t.skip != "" && c.MessageID == t.skip:
		case t.Answer != nil:
			answered := true
			_, writes, err = checked(a.projection, *c, func() (given []projection.Write, err error) {
				given, answered, err = t.Answer(i)
				return given, err
			})
			if !answered {
				blocked[c.Aggregate] = true
				continue
			}
		default:
			writes, err = a.calls.project(ctx, a.projection, c)
		}
		if err != nil {
			blocked[c.Aggregate] = true
			if Classify(err) == Permanent {
				decided = append(decided, decision{i, poison(ReasonProjection, err)})
			} else {
				failures = append(failures, Failure{i, fmt.Errorf("project event: %w", err)})
			}
			continue
		}
		if g == nil {
			g = &group{aggregate: c.Aggregate, guardSlot: guardSlot{stream: c.Stream}, ignoreVersions: a.ignoreVersions, firstVersion: a.firstVersion, past: t.past}
			if a.through != nil {
				g.through = a.through(c.Stream, c.Aggregate)
			}
			byAggregate[c.Aggregate] = g
			groups = append(groups, g)
		}
		g.events = append(g.events, planned{index: i, change: c, writes: writes})
		planning++
	}
	return groups, decided, failures
}

// project returns the writes of one event as the projection gave them, checked against the rules of
// package projection, and as BSON. A panic in the projection, or in the encoding of its values as
// BSON, is a permanent failure of this event, and of nothing else.
func project(p projection.Projection, c envelope.Change) (given, writes []projection.Write, err error) {
	return checked(p, c, func() ([]projection.Write, error) { return p.Project(projection.Event{Change: c}) })
}

// checked is like project of writes that give returns.
func checked(p projection.Projection, c envelope.Change, give func() ([]projection.Write, error)) (given, writes []projection.Write, err error) {
	defer func() {
		if r := recover(); r != nil {
			given, writes, err = nil, nil, recovered(r)
		}
	}()
	if given, err = give(); err != nil {
		return nil, nil, err
	}
	if err = check(p, &c, given); err != nil {
		return nil, nil, err
	}
	writes, err = encoded(given)
	return given, writes, err
}
