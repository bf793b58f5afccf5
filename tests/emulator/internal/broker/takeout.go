package broker

import "slices"

// takeOut removes messages from an entity before a receiver can receive them.
type takeOut struct {
	of func(*Payload) (reason string)
}

// TakeOut dead-letters every later message for which of returns a reason, as if its deliveries, or
// its time, were used up, until end is called. of is called under the entity's lock: it must be
// quick and must not call the broker.
func (e *Entity) TakeOut(of func(*Payload) (reason string)) (end func()) {
	t := &takeOut{of}
	e.lock()
	defer e.unlock()
	e.takeOuts = append(e.takeOuts, t)
	return func() {
		e.lock()
		defer e.unlock()
		e.takeOuts = slices.DeleteFunc(e.takeOuts, func(other *takeOut) bool { return other == t })
	}
}

// takesOut returns why a message is removed; empty: it is not. The caller holds the lock.
func (e *Entity) takesOut(p *Payload) string {
	for _, t := range e.takeOuts {
		if reason := t.of(p); reason != "" {
			return reason
		}
	}
	return ""
}
