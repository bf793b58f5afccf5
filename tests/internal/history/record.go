package history

import (
	"time"

	"github.com/sluice-cdc/sluice/shared/envelope"
)

// Commit is an event that was written to the source collection.
type Commit struct {
	// Stream is the one that carries the event, where several have events of its aggregate; else empty.
	Stream    string
	Aggregate string
	// Version is the event's number within its aggregate, as the event says it; of several streams, each counts for itself.
	Version int64
	// Says is the number that its message says where that is another one: of a delete, the one of the document that it deleted.
	Says int64
	// At is taken just before the write was sent, so a latency counted from it never flatters.
	At time.Time
}

// Acceptance is a message that the broker accepted from a sender.
type Acceptance struct {
	MessageID string
	// Stream is the one that the message says it is of; empty where nothing depends on it.
	Stream string
	// Aggregate is the one that the message names; empty where it names none.
	Aggregate string
	Session   string
	// Position orders the events of a stream by plain string comparison.
	Position string
	// Epoch is the leader's that published it.
	Epoch int64
	// Version is the event's number within its aggregate; 0 where the message does not say.
	Version int64
	// Duplicate says that the broker recognised a repeat and dropped it.
	Duplicate bool
	At        time.Time
}

// Observation is one change of one read-model document.
type Observation struct {
	Aggregate string
	// Events is how many events the document says it holds; -1 where the change did not touch the number.
	Events int64
	// Position is the guard's; empty where the change did not touch it. Stream is the one whose position it is, where the guard holds those
	// of several; empty of the one that came first.
	Position, Stream string
	At               time.Time
}

// History is everything recorded of one run, each list in its witness's order.
type History struct {
	Committed []Commit
	// SessionKey says which session each aggregate's messages belong in.
	SessionKey envelope.SessionKey
	// Accepted is nil where nobody watched the broker; then nothing is judged of it.
	Accepted []Acceptance
	// Observed is nil where nobody watched the read model.
	Observed []Observation
}
