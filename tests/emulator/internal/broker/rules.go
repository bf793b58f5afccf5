package broker

import (
	"time"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/filter"
)

// view returns the message as filters see it.
func (b *Broker) view(p *Payload) filter.Message {
	if f := b.decode.Load(); f != nil {
		return (*f)(p)
	}
	return filter.Empty
}

// applyRules stores the copies that a subscription's rules select: one for all rules without an
// action together, and one for each rule with an action.
func (e *Entity) applyRules(p *Payload, view filter.Message, seq int64, now time.Time) {
	plain := false
	for i := range e.rules {
		r := &e.rules[i]
		set, selected, err := applyRule(r, view)
		switch {
		case err != nil:
			if e.ruleErrors {
				e.lastSeq++
				m := &message{Payload: p, seq: e.lastSeq, enqueuedSeq: seq, enqueuedAt: now}
				e.deadLetter(m, ReasonFilterError, "Rule '"+r.Name+"': "+err.Error(), now)
			}
		case !selected:
		case r.Action != nil:
			e.enqueue(p, seq, set, now)
		case !plain:
			plain = true
			e.enqueue(p, seq, nil, now)
		}
	}
}

func applyRule(r *Rule, m filter.Message) (set map[string]any, selected bool, err error) {
	if r.Filter != nil {
		if selected, err = r.Filter.Match(m); err != nil || !selected {
			return nil, false, err
		}
	}
	if r.Action != nil {
		set, err = r.Action.Apply(m)
	}
	return set, true, err
}
