package checker

import (
	"fmt"
	"math"
	"slices"

	"github.com/sluice-cdc/sluice/tests/internal/history"
)

// Given is a committed event that was abandoned before it reached the broker, by a decision or by a
// policy. It must neither be published nor be visible; all other events of its aggregate must be.
type Given struct {
	// Stream is the stream that carries the event, if several have events of its aggregate;
	// otherwise empty.
	Stream    string
	Aggregate string
	Version   int64
	Why       string
}

// Kept returns the committed events that were not abandoned.
func (r Run) Kept() []history.Commit { return slices.DeleteFunc(slices.Clone(r.Committed), r.gave) }

func (r Run) gave(c history.Commit) bool {
	return slices.ContainsFunc(r.Given, func(g Given) bool {
		return g.Stream == c.Stream && g.Aggregate == c.Aggregate && g.Version == c.Version
	})
}

// Ranks returns a function that numbers the events of an aggregate from 1, without those that were
// abandoned: in the order of their commits or, if several streams carry events of the aggregate, in
// the order in which the broker first accepted them, followed by those that it has not accepted.
func (r Run) Ranks() func(history.Commit) int64 {
	type line struct{ stream, aggregate string }
	type event struct {
		line
		version int64
	}
	waiting := map[line][]event{} // of several streams, in the order of commits
	for _, c := range r.Kept() {
		if l := (line{c.Stream, c.Aggregate}); c.Stream != "" {
			waiting[l] = append(waiting[l], event{l, c.Version})
		}
	}
	ranks, reached, seen := map[event]int64{}, map[string]int64{}, map[string]bool{}
	for _, a := range r.Accepted {
		l := line{a.Stream, a.Aggregate}
		if seen[a.MessageID] || len(waiting[l]) == 0 {
			continue
		}
		seen[a.MessageID] = true
		reached[a.Aggregate]++
		ranks[waiting[l][0]] = reached[a.Aggregate]
		waiting[l] = waiting[l][1:]
	}
	return func(c history.Commit) int64 {
		if c.Stream != "" {
			if rank, taken := ranks[event{line{c.Stream, c.Aggregate}, c.Version}]; taken {
				return rank
			}
			return math.MaxInt64
		}
		rank := c.Version
		for _, g := range r.Given {
			if g.Aggregate == c.Aggregate && g.Version <= c.Version {
				rank--
			}
		}
		return rank
	}
}

// Parked is a message that the broker refuses and that its producer has stored instead.
type Parked struct {
	Stream, MessageID, Aggregate, Position string
	Version                                int64
}

// judgeParked checks every write of a checkpoint against the messages that had been parked when it
// was sent: a message that the broker never accepts may be covered once it is stored, and not
// before.
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
