// Package changes reads a collection's change stream, in order and without a gap, across everything that ends a cursor.
//
// Guaranteed: the sink sees every change after the starting point exactly in commit order, or [Reader.Run] returns an
// error. After an interruption the stream is opened again behind the last event that the sink took.
//
// Not guaranteed: that a change is seen once over the life of a stream. A new leader starts from the checkpoint and
// sees again what its predecessor published after it.
package changes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/producer/internal/checkpoint"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/shared/retry"
	"github.com/sluice-cdc/sluice/shared/telemetry"
)

// awaitTime is how long the server holds an empty answer back. It bounds how long an idle stream's token stays still.
const awaitTime = time.Second

// batchSize bounds the events in one answer. Left to itself the server fills 16 MB, all of it in memory at once.
const batchSize = 1000

// Sink takes what is read, in order. It may block to hold the cursor back. An error ends the reading.
type Sink interface {
	// Change takes one change and the progress that is made once it is published.
	Change(ctx context.Context, c envelope.Change, after checkpoint.Progress) error
	// Idle takes progress that needs nothing to be published: the server has nothing more up to there, or what there was
	// is not wanted.
	Idle(ctx context.Context, after checkpoint.Progress) error
}

// Config is what to read and where to begin.
type Config struct {
	Mapping Mapping
	// StartAt begins a new stream at this time; zero means now.
	StartAt time.Time
	// FullDocument and FullDocumentBeforeChange are the change stream's options of those names; empty leaves them out.
	FullDocument             options.FullDocument
	FullDocumentBeforeChange options.FullDocument
	// RestartWhenLost goes on from now when the history is lost, instead of failing with [ErrHistoryLost].
	RestartWhenLost bool
}

// Reader reads one collection.
type Reader struct {
	collection *mongo.Collection
	config     Config
	log        *slog.Logger
	open       atomic.Bool
}

// New prepares a reader; nothing is requested before Run.
func New(collection *mongo.Collection, config Config, log *slog.Logger) *Reader {
	return &Reader{collection: collection, config: config, log: log.With(telemetry.KeyStream, config.Mapping.Stream)}
}

// Reading says that the change stream is open; safe for concurrent use.
func (r *Reader) Reading() bool { return r.open.Load() }

// Run reads from behind from until ctx ends (then it returns nil), the sink refuses, or the stream cannot go on:
// [ErrHistoryLost], [ErrUnknownOperation], [ErrUnsortable], or the server's refusal. Everything that waiting can heal
// is waited out.
func (r *Reader) Run(ctx context.Context, from checkpoint.Progress, sink Sink) error {
	backoff := retry.Backoff{Initial: 100 * time.Millisecond, Max: 5 * time.Second}
	c := &cursor{reader: r, sink: sink, at: from}
	for {
		progressed, err := c.follow(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if refusal, ok := errors.AsType[*refusal](err); ok {
			return refusal.err
		}
		if progressed {
			backoff.Reset()
		}
		switch classify(err) {
		case fatal:
			return fmt.Errorf("read change stream: %w", err)
		case historyLost:
			if c.misresumed() {
				break // reopen with startAfter, as the driver should have done
			}
			if !r.config.RestartWhenLost {
				return fmt.Errorf("%w (ON_HISTORY_LOST=fail): %w", ErrHistoryLost, err)
			}
			r.log.Error("history is lost, going on from now; changes in between are not published",
				telemetry.KeyPosition, c.at.Position, telemetry.KeyError, err)
			c.at = checkpoint.Progress{Published: c.at.Published}
		case reopen:
			if err != nil {
				r.log.Warn("change stream interrupted, opening it again", telemetry.KeyError, err,
					telemetry.KeyAttempt, backoff.Attempts()+1, telemetry.KeyPosition, c.at.Position)
			}
		}
		if backoff.Wait(ctx) != nil {
			return nil
		}
	}
}

// refusal is an error that reopening the stream cannot heal, whatever its code.
type refusal struct{ err error }

func (r *refusal) Error() string { return r.err.Error() }
func (r *refusal) Unwrap() error { return r.err }

// cursor is one reading: where it is, over as many server cursors as it takes.
type cursor struct {
	reader *Reader
	sink   Sink
	at     checkpoint.Progress
	// fresh: no event has come since the server cursor was opened.
	fresh bool
}

// misresumed says that the driver resumed behind an invalidate with resumeAfter, which servers refuse: it forgets that
// the stream was opened with startAfter when the first answer is an error.
func (c *cursor) misresumed() bool { return c.fresh && c.at.AfterInvalidate }

// follow opens the stream and hands on what comes until it breaks (nil for an invalidate, which is no error).
func (c *cursor) follow(ctx context.Context) (progressed bool, err error) {
	c.fresh = false
	stream, err := c.reader.collection.Watch(ctx, mongo.Pipeline{}, c.options())
	if err != nil {
		return false, err
	}
	defer closeStream(ctx, stream)
	c.reader.open.Store(true)
	defer c.reader.open.Store(false)
	c.fresh = true
	if len(c.at.ResumeToken) == 0 {
		// A new stream: its beginning must be in the checkpoint before anything else, or a leader that dies now would
		// make the next one begin later.
		if err := c.idle(ctx, stream.ResumeToken()); err != nil {
			return false, err
		}
	}
	for {
		if stream.TryNext(ctx) {
			c.fresh = false
			invalidated, err := c.take(ctx, stream.Current)
			if err != nil || invalidated {
				return true, err
			}
			progressed = true
			continue
		}
		if err := stream.Err(); err != nil || stream.ID() == 0 {
			return progressed, err
		}
		if err := c.idle(ctx, stream.ResumeToken()); err != nil {
			return progressed, err
		}
		progressed = true
	}
}

func (c *cursor) options() *options.ChangeStreamOptionsBuilder {
	config := c.reader.config
	o := options.ChangeStream().SetMaxAwaitTime(awaitTime).SetBatchSize(batchSize)
	if config.FullDocument != "" {
		o.SetFullDocument(config.FullDocument)
	}
	if config.FullDocumentBeforeChange != "" {
		o.SetFullDocumentBeforeChange(config.FullDocumentBeforeChange)
	}
	switch {
	case len(c.at.ResumeToken) > 0 && c.at.AfterInvalidate:
		o.SetStartAfter(c.at.ResumeToken)
	case len(c.at.ResumeToken) > 0:
		o.SetResumeAfter(c.at.ResumeToken)
	case !config.StartAt.IsZero():
		o.SetStartAtOperationTime(&bson.Timestamp{T: uint32(config.StartAt.Unix())})
	}
	return o
}

// take hands one event on. The errors are refusals.
func (c *cursor) take(ctx context.Context, event bson.Raw) (invalidated bool, err error) {
	token, ok := event.Lookup("_id").DocumentOK()
	if !ok {
		return false, &refusal{errors.New("read change event: it has no resume token")}
	}
	after := checkpoint.Progress{
		ResumeToken: bytes.Clone(token), Position: envelope.TokenText(token), Published: c.at.Published,
	}
	if !envelope.Sortable(after.Position) {
		return false, &refusal{ErrUnsortable}
	}
	if t, i, ok := event.Lookup("clusterTime").TimestampOK(); ok {
		after.ClusterTime = bson.Timestamp{T: t, I: i}
	}
	operation, _ := event.Lookup("operationType").StringValueOK()
	switch c.reader.config.Mapping.kind(operation) {
	case change:
		mapped, mapErr := c.reader.config.Mapping.change(event, token)
		if mapErr != nil {
			return false, &refusal{mapErr}
		}
		err = c.sink.Change(ctx, mapped, after)
	case collection:
		c.reader.log.Warn("the watched collection was dropped or renamed; its documents' deletion makes no events",
			telemetry.KeyReason, operation, telemetry.KeyPosition, after.Position)
		err = c.sink.Idle(ctx, after)
	case invalidate:
		invalidated, after.AfterInvalidate = true, true
		err = c.sink.Idle(ctx, after)
	case passed:
		err = c.sink.Idle(ctx, after)
	case unknown:
		err = fmt.Errorf("%w: %q at %s: upgrade, or take the checkpoint past it", ErrUnknownOperation, operation, after.Position)
	}
	if err != nil {
		return false, &refusal{err}
	}
	c.at = after
	return invalidated, nil
}

// idle takes note of the server's word that there is nothing up to token.
func (c *cursor) idle(ctx context.Context, token bson.Raw) error {
	if len(token) == 0 {
		return nil // the deployment gives none while idle
	}
	position := envelope.TokenText(token)
	if position == c.at.Position {
		return nil
	}
	if !envelope.Sortable(position) {
		return &refusal{ErrUnsortable}
	}
	after := c.at
	after.ResumeToken, after.Position = bytes.Clone(token), position
	after.AfterInvalidate = false
	if err := c.sink.Idle(ctx, after); err != nil {
		return &refusal{err}
	}
	c.at = after
	return nil
}

// closeStream frees the server's cursor, briefly: it may be the server that is gone.
func closeStream(ctx context.Context, stream *mongo.ChangeStream) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = stream.Close(ctx)
}
