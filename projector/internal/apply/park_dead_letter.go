package apply

import (
	"slices"

	"github.com/sluice-cdc/sluice/shared/envelope"
)

// DeadLetterState is the state of a dead letter.
type DeadLetterState uint8

// The states.
const (
	// Waiting means that neither the dead letter nor anything behind it is applied.
	Waiting DeadLetterState = iota
	// Done means that it was applied, or dropped by an operator.
	Done
	// Overtaken means that later events were applied, without a proof that it was applied itself.
	Overtaken
)

// DeadLetterState returns the state of a dead letter by the guard of its aggregate. The projector
// parks the aggregate before it dead-letters an event, so an event below the guard was applied, or
// dropped. The broker, which dead-letters because of deliveries or age, does not: later events may
// have overtaken the dead letter. Only the position of the very event, or a version, proves that it
// was applied. A row of a snapshot with a version that was reached is a duplicate at any position.
func (a *Applier) DeadLetterState(g Guard, c *envelope.Change, reason string) DeadLetterState {
	g = g.Of(c.Stream)
	switch {
	case ruleOf(c, a.ignoreVersions) == byVersion && c.Version <= g.Version:
		return Done // its position is that of the snapshot, and moves no guard that has its version
	case c.Position == "" || c.Position > g.Position:
		return Waiting
	case c.Position == g.Position, ByProjector(reason):
		return Done
	case !a.ignoreVersions && versioned(c) && g.First > 0 && g.First <= c.Version && c.Version <= g.Version:
		return Done
	}
	return Overtaken
}

// ByProjector reports whether a message was dead-lettered by the projector, rather than by the
// broker or another program.
func ByProjector(reason string) bool { return slices.Contains(Reasons(), reason) }
