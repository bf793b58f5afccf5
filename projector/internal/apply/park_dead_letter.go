package apply

import (
	"slices"

	"github.com/sluice-cdc/sluice/shared/envelope"
)

// DeadLetterState is what is known of a dead letter.
type DeadLetterState uint8

// The standings.
const (
	// Waiting is not applied, and nothing behind it is.
	Waiting DeadLetterState = iota
	// Done was applied, or given up by a person.
	Done
	// Overtaken lies behind events that were applied, and nothing says that it was itself.
	Overtaken
)

// DeadLetterState judges a dead letter by the guard of its aggregate. One that the projector dead-lettered parked its aggregate first, so
// whatever lies below the guard was applied, or given up. One that the broker dead-lettered by itself, because of its deliveries or its
// age, did not: later events may have overtaken it. Of it only the position of the very event, or a version, says that it was applied.
func (a *Applier) DeadLetterState(g Guard, c *envelope.Change, reason string) DeadLetterState {
	g = g.Of(c.Stream)
	switch {
	case c.Position == "" || c.Position > g.Position:
		return Waiting
	case c.Position == g.Position, ByProjector(reason):
		return Done
	case !a.ignoreVersions && versioned(c) && g.First > 0 && g.First <= c.Version && c.Version <= g.Version:
		return Done
	}
	return Overtaken
}

// ByProjector says whether a message was dead-lettered by the projector, and not by the broker or by somebody else.
func ByProjector(reason string) bool { return slices.Contains(Reasons(), reason) }
