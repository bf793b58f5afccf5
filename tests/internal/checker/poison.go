package checker

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/sluice-cdc/sluice/tests/internal/history"
)

// ErrPoison breaks G5: an event behind poison was applied, was not set aside, or was set aside out
// of order.
var ErrPoison = errors.New("poison does not hold its aggregate up in order")

// Sick is an aggregate with an event that cannot be applied.
type Sick struct {
	Aggregate string
	// Before is the number of events before the poison, Total that of all events. If several
	// streams carry events of the aggregate, Poison is the event that cannot be applied, the events
	// before it are those that the broker accepted before it, and Before is not used.
	Before, Total int64
	Poison        history.Commit
	// Garbage is what blocks the aggregate if that is not one of its events.
	Garbage *Garbage
	// Reason is the dead-letter reason of the first blocked event; empty if the projection refused
	// it.
	Reason string
	// Ends means that the first blocked event may be found to end processes, so that its reason may
	// be [ReasonEnded].
	Ends bool
	// Perhaps means that the aggregate need not be parked. If it is not, nothing of it is set aside
	// and all of it is visible.
	Perhaps bool
	// Dropped means that the operator dropped the poison: all other events are visible at the end.
	Dropped bool
}

// Aside is a message in the dead-letter queue, before anything is replayed.
type Aside struct {
	MessageID, Session, Reason, Description string
}

// The reasons with which the events of a parked aggregate are dead-lettered: that of the poison
// itself, and that of the events behind it.
const (
	reasonPoison = "ProjectionFailed"
	reasonParked = "AggregateParked"
)

// ReasonEnded is the dead-letter reason of an event that two processes had in hand when they ended.
const ReasonEnded = "ProcessEnded"

// judgePoison checks the aggregates that had to be parked, and which aggregates something was set
// aside of.
func judgePoison(r Run) (found []error) {
	byName := map[string]*patient{}
	patients := r.Patients()
	for _, s := range patients {
		p := &patient{Sick: s, next: s.Before + 1, seen: map[string]bool{}}
		byName[s.Aggregate] = p
	}
	for n, o := range r.Observed[:min(r.ObservedBefore, len(r.Observed))] {
		if p := byName[o.Aggregate]; p != nil && o.Events > p.Before && !p.passed {
			p.passed = true
			found = append(found, fmt.Errorf("%w: change %d of the read model: %s went to %d events though %s follows event %d",
				ErrPoison, n, o.Aggregate, o.Events, p.what(), p.Before))
		}
	}
	ranks, stored, reached := map[string]int64{}, map[string]int{}, map[string]int64{}
	for _, a := range r.Accepted {
		if ranks[a.MessageID] == 0 {
			reached[a.Aggregate]++
			ranks[a.MessageID] = reached[a.Aggregate]
		}
		if !a.Duplicate {
			stored[a.MessageID]++
		}
	}
	for _, m := range r.Aside {
		if r.namesNoAggregate(m) {
			continue
		}
		p := byName[r.Names(m)]
		if p == nil {
			found = append(found, fmt.Errorf("%w: dead-lettered: %s of %s: %s: %s", ErrSkipped, short(m.MessageID), m.Session, m.Reason, m.Description))
			continue
		}
		if err := p.aside(m, ranks[m.MessageID], stored[m.MessageID] > 1); err != nil {
			found = append(found, err)
		}
	}
	for _, s := range patients {
		p := byName[s.Aggregate]
		if p.next <= s.Total {
			found = append(found, fmt.Errorf("%w: %s: events %d to %d are not set aside", ErrPoison, s.Aggregate, p.next, s.Total))
		}
		if s.Garbage != nil && !p.seen[s.Garbage.MessageID] {
			found = append(found, fmt.Errorf("%w: %s: garbage %s is not set aside", ErrSkipped, s.Aggregate, short(s.Garbage.MessageID)))
		}
	}
	return found
}

// patient follows a poisoned aggregate through the dead-letter queue.
type patient struct {
	Sick
	next   int64 // rank of the event that must be set aside next
	seen   map[string]bool
	passed bool
}

func (p *patient) what() string {
	if p.Garbage != nil {
		return "garbage"
	}
	return "poison"
}

// aside checks one message. A repeat of one that is there, or that was applied before, changes
// nothing: repeats are allowed.
func (p *patient) aside(m Aside, version int64, repeated bool) error {
	if p.seen[m.MessageID] || (repeated && version != 0 && version <= p.Before && m.Reason == reasonParked) {
		return nil
	}
	first := len(p.seen) == 0
	p.seen[m.MessageID] = true
	reason := reasonParked
	switch {
	case p.Garbage == nil && version == p.Before+1:
		reason = cmp.Or(p.Reason, reasonPoison)
		if p.Ends && m.Reason == ReasonEnded {
			reason = ReasonEnded
		}
	case p.Garbage != nil && m.MessageID == p.Garbage.MessageID:
		switch {
		case !first:
			return fmt.Errorf("%w: %s: garbage is set aside behind version %d", ErrPoison, p.Aggregate, p.next-1)
		case m.Reason != p.Garbage.Reason:
			return fmt.Errorf("%w: %s: garbage is set aside as %s, not as %s: %s", ErrSkipped, p.Aggregate, m.Reason, p.Garbage.Reason, m.Description)
		}
		return nil
	}
	switch {
	case version != p.next:
		return fmt.Errorf("%w: %s: version %d is set aside where version %d is next: %s", ErrPoison, p.Aggregate, version, p.next, m.Reason)
	case m.Reason != reason:
		return fmt.Errorf("%w: %s: version %d is set aside as %s, not as %s: %s", ErrPoison, p.Aggregate, version, m.Reason, reason, m.Description)
	}
	p.next++
	return nil
}

// Visible returns a function that reports whether an event must be visible in the read model:
// before the replay, no event behind the one that cannot be applied; after it, all events except
// the poison that was dropped.
func (r Run) Visible() func(history.Commit) bool {
	sick, rankOf := map[string]Sick{}, r.Ranks()
	for _, s := range r.Patients() {
		sick[s.Aggregate] = s
	}
	return func(c history.Commit) bool {
		if r.UsedUp != nil && slices.Contains(r.UsedUp.Abandoned, Given{Aggregate: c.Aggregate, Version: c.Version}) {
			return false
		}
		s, isSick := sick[c.Aggregate]
		rank := rankOf(c)
		switch {
		case r.gave(c):
			return false
		case !isSick:
			return true
		case !r.Replayed:
			return rank <= s.Before
		default:
			return !s.Dropped || rank != s.Before+1
		}
	}
}

// judgeHistory judges the broker by all that was committed, and the read model by the events that
// it can contain.
func judgeHistory(r Run) (found []error) {
	broker, view := r.History, r.History
	broker.Observed, view.Accepted = nil, nil
	broker.Committed = r.Kept()
	visible := r.Visible()
	view.Committed = slices.DeleteFunc(slices.Clone(r.Committed), func(c history.Commit) bool { return !visible(c) })
	for _, v := range append(history.Judge(broker), history.Judge(view)...) {
		found = append(found, v)
	}
	return found
}

func short(id string) string { return id[:min(8, len(id))] }
