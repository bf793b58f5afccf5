package deadletter

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/sluice-cdc/sluice/projector/internal/apply"
)

// parkStray parks an aggregate that is not parked because of the first of its dead letters that the
// broker put there and that is not known to have been applied. It returns false if there is no such
// letter.
func (p *Replayer) parkStray(ctx context.Context, a apply.Aggregate, letters []Letter) (bool, error) {
	for _, l := range letters {
		standing := p.Applier.DeadLetterState(a.Guard, &l.change, l.Reason)
		if apply.ByProjector(l.Reason) || standing == apply.Done || l.session == "" {
			continue
		}
		why := apply.Result{Kind: apply.Poison, Reason: apply.ReasonDeliveries, Description: fmt.Sprintf(
			"the broker dead-lettered the event (%s)", l.Reason)}
		if standing == apply.Overtaken {
			why = overtaken(l)
		}
		return true, p.Applier.Park(ctx, l.session, &l.change, why)
	}
	return false, nil
}

// overtaken returns the reason of an aggregate that is parked because one of its events was
// overtaken.
func overtaken(l Letter) apply.Result {
	return apply.Result{Kind: apply.Poison, Reason: apply.ReasonOvertaken, Description: fmt.Sprintf(
		"the broker dead-lettered the event (%s), and later events of the aggregate were applied; it is not known whether it was applied "+
			"before them. Repair the aggregate from its source; or compare the read model with the source: if the event's effect is there, or not missed, drop it", l.Reason)}
}

// stuckOnOvertaken stops a replay at the first letter that was overtaken. A letter that the
// operator gives up is removed from the queue before anything else: its position is behind the
// guard's, which cannot decide about it. left are the letters without it.
func (p *Replayer) stuckOnOvertaken(ctx context.Context, a apply.Aggregate, letters []Letter, skip bool, o *Outcome) (left []Letter, err error) {
	at := slices.IndexFunc(letters, func(l Letter) bool { return p.Applier.DeadLetterState(a.Guard, &l.change, l.Reason) == apply.Overtaken })
	if at >= 0 && skip && a.Reason == apply.ReasonOvertaken && letters[at].MessageID == a.MessageID {
		removed, err := p.remove(ctx, map[letterKey]bool{letters[at].key: true})
		switch {
		case err != nil:
			return nil, err
		case removed == 0:
			return nil, locked(letters[at])
		}
		o.Skipped = true
		return p.stuckOnOvertaken(ctx, a, slices.Delete(slices.Clone(letters), at, at+1), false, o)
	}
	if at < 0 {
		return letters, nil
	}
	l, why := letters[at], overtaken(letters[at])
	o.Stuck = &Stuck{l.MessageID, l.Position, why.Reason, why.Description}
	return letters, p.Applier.Amend(ctx, a.Name, a.ID, l.change, why)
}

// Left returns the aggregates that dead letters name, except those that are known to be parked:
// strays, of which the broker dead-lettered an event, in order of their first; and of the others
// the dead letters that an interrupted replay has left, ready for [Replayer.Remove].
func (p *Replayer) Left(ctx context.Context, parked map[string]bool) (strays []string, left []Outcome, err error) {
	letters, names, err := p.lookFor(ctx, true, func(aggregate string) bool { return aggregate != "" && !parked[aggregate] })
	if err != nil {
		return nil, nil, err
	}
	for _, name := range names {
		if slices.ContainsFunc(letters[name], func(l Letter) bool { return !apply.ByProjector(l.Reason) }) {
			strays = append(strays, name)
			continue
		}
		a, err := p.Applier.Parked(ctx, name)
		switch {
		case err == nil: // since a moment ago
			strays = append(strays, name)
			continue
		case !errors.Is(err, apply.ErrNotParked):
			return nil, nil, err
		}
		o := Outcome{Aggregate: name, settled: make(map[letterKey]bool)}
		p.settle(a, letters[name], &o)
		left = append(left, o)
	}
	return strays, left, nil
}

// Passed are the dead letters of an aggregate that the broker dead-lettered and that later events
// have overtaken.
type Passed struct {
	Aggregate string   `json:"aggregate"`
	Events    []Letter `json:"events"`
}

// Overtaken returns the events of parked aggregates that were overtaken, in order of the
// aggregates' first dead letters. If unpack is true, the packs in the dead-letter queue are
// replaced by copies of their events, as [Replayer.GiveUp] requires.
func (p *Replayer) Overtaken(ctx context.Context, aggregates []apply.Aggregate, unpack bool) (all []Passed, err error) {
	guards := make(map[string]apply.Guard, len(aggregates))
	for _, a := range aggregates {
		guards[a.Name] = a.Guard
	}
	letters, names, err := p.lookFor(ctx, unpack, func(aggregate string) bool { _, parked := guards[aggregate]; return parked })
	for _, name := range names {
		passed := Passed{Aggregate: name}
		for _, l := range letters[name] {
			if p.Applier.DeadLetterState(guards[name], &l.change, l.Reason) == apply.Overtaken {
				passed.Events = append(passed.Events, l)
			}
		}
		if len(passed.Events) > 0 {
			all = append(all, passed)
		}
	}
	return all, err
}

// GiveUp permanently removes events that were overtaken from the dead-letter queue; a replay then
// continues without them. It returns how many it removed: another receiver may have locked the
// others.
func (p *Replayer) GiveUp(ctx context.Context, all []Passed) (removed int, err error) {
	wanted := make(map[letterKey]bool)
	for _, passed := range all {
		for _, l := range passed.Events {
			wanted[l.key] = true
		}
	}
	return p.remove(ctx, wanted)
}

// lookFor is like lettersWhere with a receiver of its own.
func (p *Replayer) lookFor(ctx context.Context, unpack bool, wanted func(aggregate string) bool) (map[string][]Letter, []string, error) {
	receiver, err := p.Entity.DeadLetters(p.Client)
	if err != nil {
		return nil, nil, err
	}
	defer p.closeDeadLetters(ctx, receiver)
	return p.lettersWhere(ctx, receiver, unpack, wanted)
}
