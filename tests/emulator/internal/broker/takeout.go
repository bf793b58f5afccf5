package broker

import "slices"

// takeOut takes messages out of an entity before anybody can receive them.
type takeOut struct {
	of func(*Payload) (reason string)
}

// TakeOut dead-letters every message that comes from now on and of which of gives a reason, as if it had used up its deliveries, or
// its time, by now; until end is called. It is asked under the entity's lock: it must be quick and must not call the broker.
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

// takesOut is why a message is taken out; empty: it is not. The caller holds the lock.
func (e *Entity) takesOut(p *Payload) string {
	for _, t := range e.takeOuts {
		if reason := t.of(p); reason != "" {
			return reason
		}
	}
	return ""
}
