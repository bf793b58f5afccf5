package plan

import (
	"fmt"
	"strings"
)

// Form is the reason why garbage cannot be read.
type Form string

// The forms of garbage.
const (
	// Unnamed names no aggregate: it comes into a session that is a hash, among the events of the
	// one whose session it is.
	Unnamed Form = "nobodys"
	// Unsaid has no properties: only its session names an aggregate, if the aggregate has a session
	// of its own.
	Unsaid Form = "unsaid"
	// BrokenBody is an event of an aggregate, with a truncated body.
	BrokenBody Form = "broken-body"
)

// Garbage is an undecodable message, which a stranger sends among those of the stream.
type Garbage struct {
	At   Duration `json:"at"`
	ID   string   `json:"id"`
	Form Form     `json:"form"`
	// Aggregate is the aggregate into whose session it is sent, see [FullName]. That of [Unnamed]
	// has ten events of its own, and Before is how many of them come before.
	Aggregate string `json:"aggregate"`
	Before    int64  `json:"before,omitempty"`
	// KilledDrops are how long each `parked drop` lives that is killed before the one that is not.
	KilledDrops []Duration `json:"killedDrops,omitempty"`
	Random      uint64     `json:"random,omitempty"`
}

// String describes it in words.
func (g Garbage) String() string {
	switch g.Form {
	case Unnamed:
		return fmt.Sprintf("a stranger sends %s, which names no aggregate, behind %d of 10 events of %s", g.ID, g.Before, g.Aggregate)
	case BrokenBody:
		return fmt.Sprintf("a stranger sends %s, an event of %s with a broken body%s", g.ID, g.Aggregate, killed(g.KilledDrops))
	default:
		return fmt.Sprintf("a stranger sends %s, without properties, to %s%s", g.ID, g.Aggregate, killed(g.KilledDrops))
	}
}

// FullName returns the id of an aggregate of the plan: if its name in the plan begins with long,
// the id is longer than a session's id can be.
func FullName(aggregate string) string {
	if strings.HasPrefix(aggregate, "long-") {
		return aggregate + "-" + strings.Repeat("x", 128)
	}
	return aggregate
}
