package checker

import (
	"fmt"
	"slices"

	"github.com/sluice-cdc/sluice/tests/internal/history"
)

// Given is a committed event that was given up on its way to the broker, by a decision or by a policy: it is neither to be published
// nor to be seen. Everything else of its aggregate is.
type Given struct {
	Aggregate string
	Version   int64
	Why       string
}

// Kept are the committed events that nobody has given up.
func (r Run) Kept() (all []history.Commit) {
	for _, c := range r.Committed {
		if !r.gave(c.Aggregate, c.Version) {
			all = append(all, c)
		}
	}
	return all
}

func (r Run) gave(aggregate string, version int64) bool {
	return slices.ContainsFunc(r.Given, func(g Given) bool { return g.Aggregate == aggregate && g.Version == version })
}

// rank is which event of its aggregate a version is, of those that nobody has given up.
func (r Run) rank(aggregate string, version int64) int64 {
	rank := version
	for _, g := range r.Given {
		if g.Aggregate == aggregate && g.Version <= version {
			rank--
		}
	}
	return rank
}

// Parked is a message that the broker refuses, and that its producer has kept instead.
type Parked struct {
	Stream, MessageID, Aggregate, Position string
	Version                                int64
}

// judgeParked holds every write of a checkpoint against the messages that were parked when it was sent: what the broker never takes is
// covered once it is kept, and no sooner.
func judgeParked(r Run) (found []error) {
	for n, p := range r.Parked {
		if slices.ContainsFunc(r.Parked[:n], func(before Parked) bool { return before.MessageID == p.MessageID }) {
			continue
		}
		for _, w := range r.Writes {
			if w.Stream == p.Stream && w.Parked <= n && w.Position >= p.Position && !r.took(p.MessageID) {
				found = append(found, fmt.Errorf("%w: %s wrote position %s in epoch %d before %s of %s at %s was kept",
					ErrUncovered, w.Leader, w.Position, w.Epoch, short(p.MessageID), p.Aggregate, p.Position))
			}
		}
	}
	return found
}

func (r Run) took(messageID string) bool {
	return slices.ContainsFunc(r.Accepted, func(a history.Acceptance) bool { return a.MessageID == messageID })
}
