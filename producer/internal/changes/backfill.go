package changes

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/producer/internal/checkpoint"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/shared/mongodb"
	"github.com/sluice-cdc/sluice/shared/telemetry"
)

// A snapshot publishes the documents that are in the collection already, in chunks between the
// events of the change stream. Each chunk is read as of a cluster time T that is closed: everything
// up to T has been handed on, and nothing later. So its rows, at the positions [envelope.Boundary]
// of T, are in their place in the order of the stream. Until a document's keys are reached, its
// changes are left out, except deletes: the chunk will contain the document as it is then. For each
// document the stream therefore contains its row, and then every change after the row.
//
// A chunk is stored in the checkpoint before its first row is published. A successor reads the same
// documents as of the same T, and publishes them at the same positions. It reads further chunks
// only behind everything that its predecessor may have published: rows before that would come too
// late.

// Backfill configures snapshots.
type Backfill struct {
	// Initial begins a new stream with a snapshot.
	Initial bool
	// WhenLost takes a snapshot if the history is lost, instead of failing with [ErrHistoryLost].
	WhenLost bool
	// ChunkDocuments is the maximum number of documents of a chunk. A chunk also ends at 4 MiB.
	ChunkDocuments int
	// Rate is how many documents are read per second on average, unless an operator requests
	// another rate; 0 means as many as possible.
	Rate int
	// Secondary reads from a secondary if there is one.
	Secondary bool
}

var (
	// ErrSnapshotTorn reports a chunk that was published in part and can no longer be read as of
	// its time, of documents without versions by which readers would recognise what is repeated.
	ErrSnapshotTorn = errors.New("a part of the snapshot was published, and the source can no longer be read as of its time: the rest can only be " +
		"read as of now, and up to one chunk of documents is published a second time. Projections that replace whole documents are not harmed; " +
		"others park the aggregates as HistoryLost. To continue: `producer snapshot continue --accept-repeats`")
	// ErrSnapshotSettings reports settings that changed while a snapshot is being published.
	ErrSnapshotSettings = errors.New("MONGODB_COLLECTION, PIPELINE, AGGREGATE_ID_PATH, VERSION_PATH or OPERATIONS has changed while a snapshot is being " +
		"published: its rows would be others, or come in another order. Restore the former settings until the snapshot is complete")
	// ErrSnapshotRepeats reports a source whose history was lost again and again during a snapshot.
	ErrSnapshotRepeats = errors.New("the history was lost during each of the last three snapshots: the oplog is too small for the time that a " +
		"snapshot takes. Enlarge the oplog")
)

const (
	// backfillAwaitTime is [awaitTime] during a snapshot: between two chunks the stream is read
	// once.
	backfillAwaitTime = 5 * time.Millisecond
	// maxBackfillLag is up to which lag of the stream chunks are read. What is read must be within
	// the source's history of snapshots, which is five minutes by default.
	maxBackfillLag = 60 * time.Second
	// maxLost is how often the history may be lost before a snapshot is complete.
	maxLost = 3
)

// backfilling reports whether a snapshot is being published.
func (c *cursor) backfilling() bool { return c.at.Backfill != nil && !c.at.Backfill.Done }

// publishesRows reports whether a snapshot is being published that is not paused.
func (c *cursor) publishesRows() bool { return c.backfilling() && !c.at.Backfill.Paused }

// startBackfill returns the state of a new snapshot, of the named aggregates or of all documents.
func (c *cursor) startBackfill(ctx context.Context, mode checkpoint.BackfillMode, aggregates []string) (*checkpoint.Backfill, error) {
	var estimate int64
	err := c.request(ctx, func(ctx context.Context) (err error) {
		if err = c.backfill.check(ctx); err == nil {
			estimate, err = c.backfill.count(ctx, aggregates)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("begin a snapshot: %w", err)
	}
	c.reader.log.Info("a snapshot begins: the documents that are in the collection are published within the stream",
		telemetry.KeyReason, string(mode), telemetry.KeyCount, estimate)
	return &checkpoint.Backfill{
		ID: bson.NewObjectID().Hex(), Mode: mode, Settings: c.backfill.settings, Estimate: estimate, BeganAt: time.Now(), Aggregates: aggregates,
	}, nil
}

// restart continues from now, without what lies between. A snapshot continues: changes of the
// documents that it has not reached are in it.
func (c *cursor) restart() {
	state := c.at.Backfill.Interrupted(c.at.Position)
	if state != nil {
		state.Form = "" // that of the new tokens
	}
	c.at, c.fromNow = c.numbering.restart(c.at), true
	c.at.Backfill = state
}

// healWithBackfill continues from now with a snapshot, after the history was lost. Errors:
// [ErrSnapshotRefused] and [ErrSnapshotRepeats], which are permanent, and those of the server.
func (c *cursor) healWithBackfill(ctx context.Context) error {
	lost := 1
	if c.backfilling() {
		lost = c.at.Backfill.Lost + 1
	}
	if lost > maxLost {
		return &permanentError{ErrSnapshotRepeats}
	}
	state, err := c.startBackfill(ctx, checkpoint.BackfillLost, nil)
	if err != nil {
		return err
	}
	state.Lost = lost
	c.reader.log.Error("history is lost; a snapshot replaces it: documents that were deleted meanwhile stay in the read models until `projector verify` finds them",
		telemetry.KeyPosition, c.at.Position)
	c.at, c.fromNow, c.heals = c.numbering.restart(c.at), true, false
	c.at.Backfill = state
	return nil
}

// historyLost returns the error of a stream that neither heals nor gives up what is lost. It names
// a snapshot as a remedy if one could be published.
func (c *cursor) historyLost(err error) error {
	remedy := "To continue from now without them: ON_HISTORY_LOST=latest"
	if envelope.Sortable(c.at.Position) && c.reader.config.CheckBackfill(true) == nil {
		remedy = "To have the documents of the collection published in their place: ON_HISTORY_LOST=snapshot. " + remedy
	}
	return fmt.Errorf("%w (ON_HISTORY_LOST=fail). %s: %w", ErrHistoryLost, remedy, err)
}

// beginsWithBackfill reports whether the stream is new and begins with a snapshot.
func (c *cursor) beginsWithBackfill() bool {
	return c.reader.config.Backfill.Initial && len(c.at.ResumeToken) == 0 && c.at.Backfill == nil && !c.fromNow
}

// carry returns the snapshot's state for progress that is not a row's. A complete snapshot ends
// with it.
func (c *cursor) carry() *checkpoint.Backfill {
	if !c.backfilling() {
		return nil
	}
	return c.at.Backfill
}

// covered reports whether a change of a document is published: its row has been, or there is no
// snapshot.
func (c *cursor) covered(event bson.Raw, operation string) bool {
	if !c.at.Backfill.Suppresses() || operation == string(envelope.Delete) {
		return true
	}
	cursor := c.at.Backfill.Cursor
	return len(cursor) > 0 && compareKeys(c.backfill.eventKeys(event), cursor) <= 0
}

// readChunk reads and publishes the next chunk as of the time just before next, if that is closed.
// next is the cluster time of what the stream returned and was not handed on yet. read reports
// whether a chunk was published.
func (c *cursor) readChunk(ctx context.Context, next bson.Timestamp) (read bool, err error) {
	if !c.publishesRows() || c.fragments.pending() || next.IsZero() {
		return false, nil
	}
	at := lastBefore(next)
	began := time.Now()
	if at.Before(envelope.TokenTime(c.at.Position)) || began.Before(c.backfill.notBefore) {
		return false, nil
	}
	if c.backfill.first.IsZero() {
		err := c.request(ctx, func(ctx context.Context) (err error) {
			c.backfill.first, err = mongodb.ConfirmedTime(ctx, c.reader.collection)
			return err
		})
		if err != nil {
			return false, err
		}
	}
	if next.Before(c.backfill.first) {
		return false, nil
	}
	state, limit := c.at.Backfill, c.reader.config.Backfill.ChunkDocuments
	rate := cmp.Or(state.Rate, c.reader.config.Backfill.Rate)
	if rate > 0 {
		limit = min(limit, rate) // a second's, or the stream's token would wait for longer
	}
	if c.backfill.slow > 0 {
		limit = min(limit, c.backfill.slow)
	}
	documents, lag, err := c.readDocuments(ctx, at, limit)
	switch {
	case errors.Is(err, errNoResponse):
		c.backfill.slow = max(1, limit/2) // so many may take longer than a response may
		return false, err
	case errors.Is(err, errTooOld):
		c.reader.log.Warn("the source cannot be read as of the time of the stream; the snapshot waits for a later one", telemetry.KeyError, err)
		c.backfill.notBefore = time.Now().Add(time.Second)
		return false, nil
	case err != nil:
		return false, err
	case lag > maxBackfillLag:
		c.backfill.notBefore = time.Now().Add(time.Second)
		return false, nil
	case len(documents) == 0:
		done := *state
		done.Done = true
		// From here on every change is published. A successor that did not know it would leave out
		// later changes of a document of which changes have been published.
		if err := c.setBackfill(ctx, &done); err != nil {
			return false, err
		}
		c.reader.config.Metrics.backfill(&done)
		c.reader.log.Info("the snapshot is complete", telemetry.KeyCount, done.Rows)
		return false, errSnapshotChanged
	}
	planned := *state
	planned.Chunk = &checkpoint.Chunk{At: at, Count: int64(len(documents)), To: documents[len(documents)-1].keys}
	if t, n, ok := envelope.ParseBoundary(c.at.Position); ok && t.Equal(at) {
		planned.Chunk.Base = n + 1
	}
	if err := c.setBackfill(ctx, &planned); err != nil {
		return false, err
	}
	if rate > 0 {
		c.backfill.notBefore = began.Add(time.Duration(len(documents)) * time.Second / time.Duration(rate))
	}
	return true, c.publishChunk(ctx, documents)
}

// setBackfill records another state of the snapshot in the checkpoint. The error is a
// permanentError.
func (c *cursor) setBackfill(ctx context.Context, state *checkpoint.Backfill) error {
	after := c.at
	after.Backfill = state
	return c.pass(ctx, after, c.sink.Begin)
}

// readDocuments reads the documents behind the snapshot's cursor, like the stream with a bound on
// the wait for the server.
func (c *cursor) readDocuments(ctx context.Context, at bson.Timestamp, limit int) (documents []row, lag time.Duration, err error) {
	err = c.request(ctx, func(ctx context.Context) (err error) {
		documents, lag, err = c.backfill.read(ctx, c.at.Backfill, at, limit)
		return err
	})
	return documents, lag, err
}

// idleOrChunk reads a chunk of a snapshot as of the time before an empty response's token, or
// records the token. On an idle source tokens advance every ten seconds only, so a token waits
// while chunks can be read before it, until there is a later one.
func (c *cursor) idleOrChunk(ctx context.Context, token bson.Raw) error {
	if c.held != nil && tokenTime(c.held).Before(tokenTime(token)) {
		if err := c.idle(ctx, c.held); err != nil {
			return err
		}
		c.held = nil
	}
	read, err := c.readChunk(ctx, tokenTime(token))
	if err != nil {
		return err
	}
	if read || c.publishesRows() && time.Now().Before(c.backfill.notBefore) {
		c.held = bytes.Clone(token)
		return nil
	}
	c.held = nil
	return c.idle(ctx, token)
}

// resumeChunk publishes the rest of a chunk that is in the checkpoint.
func (c *cursor) resumeChunk(ctx context.Context) error {
	if !c.backfilling() || c.at.Backfill.Chunk == nil {
		return nil
	}
	chunk := c.at.Backfill.Chunk
	documents, _, err := c.readDocuments(ctx, chunk.At, int(chunk.Count))
	if errors.Is(err, errTooOld) {
		return c.tearChunk()
	}
	if err != nil {
		return err
	}
	if n := int64(len(documents)); n != chunk.Count || compareKeys(documents[n-1].keys, chunk.To) != 0 {
		return &permanentError{fmt.Errorf("read the chunk of the snapshot at %v again: it had %d documents and now has %d: was the collection replaced?",
			chunk.At, chunk.Count, n)}
	}
	return c.publishChunk(ctx, documents)
}

// tearChunk forgets a chunk that can no longer be read as of its time. Its documents are read again
// as of a later time. Errors: [ErrSnapshotTorn].
func (c *cursor) tearChunk() error {
	chunk := c.at.Backfill.Chunk
	published := c.at.Position >= envelope.Boundary(chunk.At, chunk.Base)
	if published && !c.backfill.versions && !c.at.Backfill.AcceptRepeats {
		return &permanentError{ErrSnapshotTorn}
	}
	c.reader.log.Warn("the source can no longer be read as of the time of the snapshot's chunk; reading it as of a later time",
		telemetry.KeyPosition, c.at.Position)
	c.at.Backfill = c.at.Backfill.Interrupted(c.at.Position)
	return nil
}

// publishChunk publishes those rows of the chunk in the checkpoint that are not published yet.
func (c *cursor) publishChunk(ctx context.Context, documents []row) error {
	state, chunk := c.at.Backfill, c.at.Backfill.Chunk
	for i, document := range documents {
		documents[i] = row{} // what is published is not kept
		position := envelope.Boundary(chunk.At, chunk.Base+uint32(i))
		if position <= c.at.Position {
			continue
		}
		after := c.at
		after.Position = position
		if i == len(documents)-1 {
			after.Backfill = state.Finished()
		}
		var err error
		if document.document == nil && document.event == nil { // PIPELINE does not pass it
			err = c.sink.Idle(ctx, after)
		} else if change, mapErr := c.row(document, chunk.At, position); mapErr != nil {
			err = mapErr
		} else {
			err = c.sink.Change(ctx, change, after)
		}
		if err != nil {
			return &permanentError{err}
		}
		c.at = after
	}
	c.reader.config.Metrics.backfill(c.at.Backfill)
	return nil
}

// row maps a document of a snapshot. It has a version only if the projector can recognise a
// repeated one by it.
func (c *cursor) row(document row, at bson.Timestamp, position string) (envelope.Change, error) {
	state, event := c.at.Backfill, document.event
	if document.document != nil {
		var err error
		if event, err = c.backfill.event(document.document, at); err != nil {
			return envelope.Change{}, err
		}
	}
	change, err := c.reader.config.Mapping.change(event, state.ID+"/"+position, position)
	if err != nil {
		return change, err
	}
	change.Row = envelope.RowInitial
	if state.Mode != checkpoint.BackfillInitial || len(state.Repeats) > 0 && compareKeys(document.keys, state.Repeats) <= 0 {
		change.Row = envelope.RowRepeat
	}
	change.Time = time.Time{} // when the document was written is not known
	if !c.backfill.versions {
		change.Version = 0
	}
	return change, nil
}

// lastBefore returns the last cluster time before t.
func lastBefore(t bson.Timestamp) bson.Timestamp {
	if t.I == 0 {
		return bson.Timestamp{T: t.T - 1, I: ^uint32(0)}
	}
	return bson.Timestamp{T: t.T, I: t.I - 1}
}

// tokenTime returns the cluster time in a resume token; zero without one.
func tokenTime(token bson.Raw) bson.Timestamp {
	return envelope.TokenTime(envelope.TokenText(token))
}
