package plan

import (
	"fmt"
	"strings"
)

// Form is how garbage cannot be read.
type Form string

// The forms of garbage.
const (
	// Nobodys names no aggregate: it comes into a session that is a hash, among the events of the one whose session it is.
	Nobodys Form = "nobodys"
	// Unsaid says nothing of itself: its session alone names an aggregate, where that has one to itself.
	Unsaid Form = "unsaid"
	// BrokenBody is an event of an aggregate, with a body that is broken off.
	BrokenBody Form = "broken-body"
)

// Garbage is a message that nobody can read, which a stranger sends among those of the stream.
type Garbage struct {
	At   Duration `json:"at"`
	ID   string   `json:"id"`
	Form Form     `json:"form"`
	// Aggregate is the one into whose session it is sent, see [FullName]. That of [Nobodys] has ten events of its own, and Before is how many of
	// them come before.
	Aggregate string `json:"aggregate"`
	Before    int64  `json:"before,omitempty"`
	// KilledDrops are how long each `parked drop` lives that is killed before the one that is not.
	KilledDrops []Duration `json:"killedDrops,omitempty"`
	Random      uint64     `json:"random,omitempty"`
}

// String is what happens, in words.
func (g Garbage) String() string {
	switch g.Form {
	case Nobodys:
		return fmt.Sprintf("a stranger sends %s, which names nobody, behind %d of 10 events of %s", g.ID, g.Before, g.Aggregate)
	case BrokenBody:
		return fmt.Sprintf("a stranger sends %s, an event of %s with a broken body%s", g.ID, g.Aggregate, killed(g.KilledDrops))
	default:
		return fmt.Sprintf("a stranger sends %s, which says nothing of itself, to %s%s", g.ID, g.Aggregate, killed(g.KilledDrops))
	}
}

// FullName is the id of an aggregate of the plan: one whose name in it begins with long has a longer one than a session's id
// can be.
func FullName(aggregate string) string {
	if strings.HasPrefix(aggregate, "long-") {
		return aggregate + "-" + strings.Repeat("x", 128)
	}
	return aggregate
}
