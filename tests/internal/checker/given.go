package checker

import (
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
