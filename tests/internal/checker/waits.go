package checker

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// ErrWaits breaks G5: an event of a healthy aggregate waited longer than the bound, without a fault
// that affects all aggregates.
var ErrWaits = errors.New("a healthy aggregate waits")

// Waits is how long the events of healthy aggregates may wait.
type Waits struct {
	Aggregates []string
	// Bound is the longest time from the broker's acceptance of an event to its effect in the read
	// model, and PerEvent the additional time for each event, of any aggregate, that was to be
	// applied in between.
	Bound, PerEvent time.Duration
	// Until is when the record ends: an event without an effect has waited until then.
	Until time.Time
}

// Span is a time in which something delayed every aggregate.
type Span struct{ From, To time.Time }

// waited is an event, the time at which the broker accepted it, and the time of its effect.
type waited struct {
	aggregate, messageID string
	accepted, applied    time.Time
	allowed              time.Duration
}

func (w waited) took() time.Duration { return w.applied.Sub(w.accepted) }

// judgeWaits judges the events of healthy aggregates during whose wait, or during the bound, no
// fault affected all aggregates.
func judgeWaits(r Run) (found []error) {
	for _, w := range r.waits() {
		if w.took() > w.allowed {
			found = append(found, fmt.Errorf("%w: %s of %s, accepted at %s, took %s, and at most %s is promised",
				ErrWaits, short(w.messageID), w.aggregate, w.accepted.Format("15:04:05.000"), w.took().Round(time.Millisecond), w.allowed))
		}
	}
	return found
}

// LongestWait returns how many events are judged, and the longest of their waits with the allowed
// one.
func (r Run) LongestWait() (judged int, longest, allowed time.Duration) {
	for _, w := range r.waits() {
		if judged++; w.took() > longest {
			longest, allowed = w.took(), w.allowed
		}
	}
	return judged, longest, allowed
}

// waits returns the events that are judged.
func (r Run) waits() (judged []waited) {
	if r.Waits == nil {
		return nil
	}
	all := r.effects()
	for _, w := range all {
		if !slices.Contains(r.Waits.Aggregates, w.aggregate) {
			continue
		}
		meanwhile := 0
		for _, other := range all {
			if other.accepted.Before(w.applied) && other.applied.After(w.accepted) {
				meanwhile++
			}
		}
		w.allowed = r.Waits.Bound + time.Duration(meanwhile)*r.Waits.PerEvent
		end := w.accepted.Add(min(w.took(), w.allowed))
		if !slices.ContainsFunc(r.Disturbed, func(s Span) bool { return !s.To.Before(w.accepted) && !s.From.After(end) }) {
			judged = append(judged, w)
		}
	}
	return judged
}

// effects returns all events that the broker accepted. Those of aggregates with a fault may be set
// aside at any time, one by one.
func (r Run) effects() (all []waited) {
	wrong := map[string]bool{}
	for _, s := range r.Sick {
		wrong[s.Aggregate] = true
	}
	for _, g := range r.Garbage {
		wrong[g.Aggregate] = true
	}
	applied := map[string][]time.Time{} // of each aggregate, when the n-th event took effect
	for _, o := range r.Observed {
		for int64(len(applied[o.Aggregate])) < o.Events {
			applied[o.Aggregate] = append(applied[o.Aggregate], o.At)
		}
	}
	seen, ranks := map[string]bool{}, map[string]int{}
	for _, a := range r.Accepted {
		if seen[a.MessageID] {
			continue
		}
		seen[a.MessageID] = true
		w := waited{aggregate: a.Aggregate, messageID: a.MessageID, accepted: a.At, applied: r.Waits.Until}
		if n := ranks[a.Aggregate]; n < len(applied[a.Aggregate]) && !wrong[a.Aggregate] {
			w.applied = applied[a.Aggregate][n]
		}
		ranks[a.Aggregate]++
		all = append(all, w)
	}
	return all
}
