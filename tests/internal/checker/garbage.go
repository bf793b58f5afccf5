package checker

import (
	"fmt"
	"slices"
)

// Garbage is a message that cannot be decoded, which a stranger sent among those of the stream.
type Garbage struct {
	MessageID, Session string
	// Aggregate is the aggregate that the message names; empty if it names none.
	Aggregate string
	// Position is the position that the message claims, in a stream; empty if it claims none.
	Position, Stream string
	// Reason is the reason with which the message must be dead-lettered.
	Reason string
	// After is how many messages of the stream the broker had accepted before this one.
	After int
}

// Is reports whether two values are the same message.
func (g Garbage) Is(other Garbage) bool {
	return g.MessageID == other.MessageID && g.Session == other.Session
}

// Patients returns the aggregates that are parked at the end: those with poison, and those that
// garbage names. Garbage does not park its aggregate if its position is not above those before it.
func (r Run) Patients() (all []Sick) {
	for _, s := range r.Sick {
		if s.Poison.Stream != "" {
			s.Before = min(r.Ranks()(s.Poison)-1, s.Total)
		}
		if !s.Perhaps || slices.ContainsFunc(r.Aside, func(m Aside) bool { return r.Names(m) == s.Aggregate }) {
			all = append(all, s)
		}
	}
	for _, g := range r.Garbage {
		if g.Aggregate == "" {
			continue
		}
		s, highest := Sick{Aggregate: g.Aggregate, Garbage: &g}, ""
		first := map[string]bool{}
		for _, a := range r.Accepted[:g.After] {
			if a.Aggregate == g.Aggregate && !first[a.MessageID] {
				first[a.MessageID] = true
				if s.Before++; a.Stream == g.Stream {
					highest = max(highest, a.Position)
				}
			}
		}
		if g.Position != "" && g.Position <= highest {
			continue
		}
		for _, c := range r.Kept() {
			if c.Aggregate == g.Aggregate {
				s.Total++
			}
		}
		all = append(all, s)
	}
	return all
}

// judgeGarbage checks that garbage without an aggregate stays in the dead-letter queue, with its
// reason, even after everything else in the queue was replayed.
func judgeGarbage(r Run) (found []error) {
	for _, g := range r.Garbage {
		if g.Aggregate != "" {
			continue
		}
		if why := g.missing(r.Aside); why != "" {
			found = append(found, fmt.Errorf("%w: garbage %s of session %s %s", ErrSkipped, short(g.MessageID), g.Session, why))
		}
		if why := g.missing(r.Left); r.Replayed && why != "" {
			found = append(found, fmt.Errorf("%w: after the replay garbage %s of session %s %s", ErrSkipped, short(g.MessageID), g.Session, why))
		}
	}
	for _, m := range r.Left {
		if r.Replayed && !r.namesNoAggregate(m) {
			found = append(found, fmt.Errorf("%w: after the replay %s of %s is in the dead-letter queue: %s: %s",
				ErrStuck, short(m.MessageID), m.Session, m.Reason, m.Description))
		}
	}
	return found
}

// missing describes how garbage differs from what is set aside of it; it returns "" if it does not
// differ.
func (g Garbage) missing(aside []Aside) string {
	for _, m := range aside {
		if m.MessageID != g.MessageID {
			continue
		}
		if m.Reason != g.Reason {
			return fmt.Sprintf("is set aside as %s, not as %s: %s", m.Reason, g.Reason, m.Description)
		}
		return ""
	}
	return "is not set aside"
}

// Names returns the aggregate that a message names, whether it is one of the stream or garbage; ""
// if it names none.
func (r Run) Names(m Aside) string {
	for _, g := range r.Garbage {
		if g.MessageID == m.MessageID && g.Session == m.Session {
			return g.Aggregate
		}
	}
	for _, a := range r.Accepted {
		if a.MessageID == m.MessageID {
			return a.Aggregate
		}
	}
	return ""
}

// namesNoAggregate reports whether a message is garbage that names no aggregate.
func (r Run) namesNoAggregate(m Aside) bool {
	return slices.ContainsFunc(r.Garbage, func(g Garbage) bool {
		return g.Aggregate == "" && g.MessageID == m.MessageID && g.Session == m.Session
	})
}
