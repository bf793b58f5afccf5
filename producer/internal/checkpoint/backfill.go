package checkpoint

import (
	"encoding/json"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/shared/envelope"
)

// Backfill is how far a snapshot of the collection, which is published within the stream, has come.
// A Backfill is never changed: progress has another one.
type Backfill struct {
	// ID distinguishes the rows of this snapshot from those of others.
	ID string `json:"id"`
	// Mode is why the snapshot is made.
	Mode BackfillMode `json:"mode"`
	// Settings is a hash of the settings that decide what the rows are and in which order they
	// come.
	Settings string `json:"settings"`
	// Form is the token version of the stream's positions: the position of a row has none.
	Form string `json:"form,omitempty"`
	// Cursor holds the keys of the last document that was published; empty before the first.
	Cursor bson.Raw `json:"-"`
	// Repeats holds the keys up to which rows may have been published before, at another time;
	// empty if none have.
	Repeats bson.Raw `json:"-"`
	// Chunk is what is published next; nil if that is not decided.
	Chunk *Chunk `json:"-"`
	// Rows counts the documents read.
	Rows int64 `json:"rows"`
	// Estimate is how many documents the collection had when the snapshot began.
	Estimate int64 `json:"estimate,omitempty"`
	// BeganAt is the wall clock of the leader that began it, for operators.
	BeganAt time.Time `json:"beganAt"`
	// Aggregates are the texts of the aggregates whose documents are published; empty means all.
	Aggregates []string `json:"aggregates,omitempty"`
	// Rate is how many documents per second are published; 0 means as configured.
	Rate int `json:"rate,omitempty"`
	// Paused reports that an operator has paused the snapshot.
	Paused bool `json:"paused,omitempty"`
	// AcceptRepeats reports that an operator has accepted that rows are published a second time.
	AcceptRepeats bool `json:"acceptRepeats,omitempty"`
	// ResumedAt is when the snapshot was last resumed, by the leader's wall clock; zero if it never
	// was. ResumedRows is what Rows was then.
	ResumedAt   time.Time `json:"resumedAt,omitzero"`
	ResumedRows int64     `json:"resumedRows,omitempty"`
	// Lost counts how often the history was lost since a snapshot was last completed.
	Lost int `json:"lost,omitempty"`
	// Done is set once all rows are published, or the snapshot is stopped, until the stream has a
	// position of its own again.
	Done bool `json:"done,omitempty"`
}

// Interrupted returns the state from which a snapshot continues after the stream was moved, so that
// the chunk of the checkpoint at position can no longer be published as it was planned. b may be
// nil.
func (b *Backfill) Interrupted(position string) *Backfill {
	if b == nil || b.Done {
		return nil
	}
	moved := *b
	if c := b.Chunk; c != nil {
		moved.Chunk = nil
		if position >= envelope.Boundary(c.At, c.Base) {
			moved.Repeats = c.To
		}
	}
	return &moved
}

// Finished returns the state in which all rows of the chunk are published.
func (b *Backfill) Finished() *Backfill {
	finished := *b
	finished.Chunk, finished.Cursor, finished.Rows = nil, b.Chunk.To, b.Rows+b.Chunk.Count
	return &finished
}

// Passed returns the state in which the rows of the chunk up to a position are published, or left
// out. ok is false if the position is not that of a row of the chunk. b may be nil.
func (b *Backfill) Passed(position string) (passed *Backfill, ok bool) {
	at, n, isRow := envelope.ParseBoundary(position)
	if !isRow || b == nil || b.Chunk == nil || !at.Equal(b.Chunk.At) || n < b.Chunk.Base {
		return nil, false
	}
	switch last := b.Chunk.Count - 1; {
	case int64(n-b.Chunk.Base) > last:
		return nil, false
	case int64(n-b.Chunk.Base) == last:
		return b.Finished(), true
	}
	return b, true
}

// Repeated returns the state of a copy of the checkpoint that is restored: any of its rows may have
// been published since. b may be nil.
func (b *Backfill) Repeated() *Backfill {
	moved := b.Interrupted("")
	if moved != nil && moved.Mode == BackfillInitial {
		moved.Mode = BackfillLost
	}
	return moved
}

// Suppresses reports whether changes of documents that the snapshot has not reached are left out.
func (b *Backfill) Suppresses() bool {
	return b != nil && !b.Done && b.Mode != BackfillAggregates
}

// Pace returns how many documents per second the snapshot has published since it began or was last
// resumed, and how long the rest takes at that rate. ok is false while the latter is unknown.
func (b *Backfill) Pace(now time.Time) (perSecond float64, rest time.Duration, ok bool) {
	elapsed := now.Sub(b.BeganAt)
	if !b.ResumedAt.IsZero() {
		elapsed = now.Sub(b.ResumedAt)
	}
	if b.Done || b.Paused || elapsed <= 0 {
		return 0, 0, false
	}
	perSecond = float64(b.Rows-b.ResumedRows) / elapsed.Seconds()
	if perSecond == 0 {
		return 0, 0, false
	}
	return perSecond, time.Duration(float64(max(b.Estimate-b.Rows, 0)) / perSecond * float64(time.Second)), true
}

// BackfillMode is why a snapshot is made.
type BackfillMode string

// The modes of a snapshot.
const (
	// BackfillInitial begins a stream: no reader can have a document already.
	BackfillInitial BackfillMode = "initial"
	// BackfillLost replaces history that was lost.
	BackfillLost BackfillMode = "lost"
	// BackfillRequested was requested by an operator.
	BackfillRequested BackfillMode = "requested"
	// BackfillAggregates was requested for single aggregates. No change is left out meanwhile.
	BackfillAggregates BackfillMode = "aggregates"
)

// Chunk is a part of a snapshot, read as of one cluster time. It is stored before its first row is
// published, so that a successor publishes the same rows at the same positions.
type Chunk struct {
	At    bson.Timestamp
	Base  uint32   // ordinal of the first row among those of At
	Count int64    // documents
	To    bson.Raw // keys of the last one
}

// wireBackfill is a Backfill as JSON: its BSON is canonical Extended JSON.
type wireBackfill struct {
	Backfill

	Cursor  json.RawMessage `json:"cursor,omitempty"`
	Repeats json.RawMessage `json:"repeats,omitempty"`
	Chunk   *wireChunk      `json:"chunk,omitempty"`
}

type wireChunk struct {
	At    wireTimestamp   `json:"at"`
	Base  uint32          `json:"base"`
	Count int64           `json:"count"`
	To    json.RawMessage `json:"to"`
}

func (b *Backfill) wire() (*wireBackfill, error) {
	w := &wireBackfill{Backfill: *b}
	w.BeganAt, w.ResumedAt = b.BeganAt.UTC(), b.ResumedAt.UTC()
	var err error
	if w.Cursor, err = toJSON(b.Cursor); err != nil {
		return nil, err
	}
	if w.Repeats, err = toJSON(b.Repeats); err != nil {
		return nil, err
	}
	if c := b.Chunk; c != nil {
		w.Chunk = &wireChunk{At: wireTimestamp(c.At), Base: c.Base, Count: c.Count}
		if w.Chunk.To, err = toJSON(c.To); err != nil {
			return nil, err
		}
	}
	return w, nil
}

func (w *wireBackfill) read() (*Backfill, error) {
	switch w.Mode {
	case BackfillInitial, BackfillLost, BackfillRequested, BackfillAggregates:
	default:
		return nil, fmt.Errorf("its mode is %q, which this release does not know", w.Mode)
	}
	b := w.Backfill
	if err := fromJSON(w.Cursor, &b.Cursor); err != nil {
		return nil, err
	}
	if err := fromJSON(w.Repeats, &b.Repeats); err != nil {
		return nil, err
	}
	if c := w.Chunk; c != nil {
		b.Chunk = &Chunk{At: bson.Timestamp(c.At), Base: c.Base, Count: c.Count}
		if err := fromJSON(c.To, &b.Chunk.To); err != nil {
			return nil, err
		}
	}
	return &b, nil
}

// toJSON returns a document, which may be empty, as canonical Extended JSON.
func toJSON(document bson.Raw) (json.RawMessage, error) {
	if len(document) == 0 {
		return nil, nil
	}
	return bson.MarshalExtJSON(document, true, false)
}

func fromJSON(text json.RawMessage, document *bson.Raw) error {
	if len(text) == 0 {
		return nil
	}
	return bson.UnmarshalExtJSON(text, true, document)
}
