package history

import (
	"time"

	"github.com/sluice-cdc/sluice/shared/envelope"
)

// Commit is an event that was written to the source collection.
type Commit struct {
	// Stream is the stream that carries the event, if several have events of its aggregate;
	// otherwise empty.
	Stream    string
	Aggregate string
	// Version is the event's number within its aggregate, as the event states it. Each of several
	// streams counts on its own.
	Version int64
	// MessageVersion is the number that the event's message states, if that differs: for a delete,
	// it is that of the deleted document.
	MessageVersion int64
	// At is taken just before the write is sent, so that a latency measured from it is never too
	// short.
	At time.Time
}

// Acceptance is a message that the broker accepted from a sender.
type Acceptance struct {
	MessageID string
	// Stream is the stream that the message names; empty if nothing depends on it.
	Stream string
	// Aggregate is the aggregate that the message names; empty if it names none.
	Aggregate string
	Session   string
	// Position orders the events of a stream. Positions are compared as strings.
	Position string
	// Epoch is the epoch of the leader that published it.
	Epoch int64
	// Version is the event's number within its aggregate; 0 if the message has none.
	Version int64
	// Duplicate reports whether the broker recognised a repeat and dropped it.
	Duplicate bool
	// Row reports whether it is a row of a snapshot.
	Row bool
	At  time.Time
}

// Observation is one change of one read-model document.
type Observation struct {
	Aggregate string
	// Events is the number of events that the document counts; -1 if the change did not touch it.
	Events int64
	// Position is that of the guard; empty if the change did not touch it. Stream is the stream of
	// the position, if the guard contains positions of several; empty stands for the first one.
	Position, Stream string
	At               time.Time
}

// History is everything recorded of one run, each list in the order of its source.
type History struct {
	Committed []Commit
	// SessionKey determines the session of each aggregate's messages.
	SessionKey envelope.SessionKey
	// Accepted is nil if the broker was not observed; it is not judged then.
	Accepted []Acceptance
	// Observed is nil if the read model was not observed.
	Observed []Observation
}
