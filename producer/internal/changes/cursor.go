package changes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/producer/internal/checkpoint"
	"github.com/sluice-cdc/sluice/producer/internal/oplog"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/shared/mongodb"
	"github.com/sluice-cdc/sluice/shared/retry"
	"github.com/sluice-cdc/sluice/shared/telemetry"
	"github.com/sluice-cdc/sluice/shared/terminal"
)

// awaitTime is how long the server waits for an event before it returns an empty response. So the
// token of an idle stream advances at least this often.
const awaitTime = time.Second

// cursor reads a stream and tracks how far it has read, over any number of server cursors. It
// belongs to one goroutine.
type cursor struct {
	reader    *Reader
	sink      Sink
	numbering numbering
	at        checkpoint.Progress
	// fresh reports whether no event has come since the server cursor was opened.
	fresh       bool
	state       openState // of the current server cursor
	disbelieved int       // how often a report of lost history was not believed since the last progress
	// confirmed reports whether the server is known to hold everything after the resume point,
	// since the server cursor was opened.
	confirmed      bool
	nextConfirm    time.Time // the server is not asked again before that
	confirmBackoff retry.Backoff
	// fromNow reports whether the history was lost, so that START_AT no longer counts.
	fromNow bool
	// trySplit requests that the server splits large events; false once it has refused.
	trySplit   bool
	splitting  bool // the open stream splits large events
	useTokenV1 bool // the server accepts tokens of version 1 only
	fragments  fragments
	batch      *batchSizer
	timeout    responseTimeout
	errors     errorHistory
	backfill   *backfillSource
	held       bson.Raw // the token of an empty response that waits for chunks before it; may be nil
}

// mayBeMisresumed reports whether the driver may have resumed although only a new stream can
// continue: after an invalidate with resumeAfter, which servers refuse (if the first response is an
// error, the driver forgets that the stream was opened with startAfter); or in the middle of a
// split event that is now split differently.
func (c *cursor) mayBeMisresumed() bool {
	return c.fresh && c.at.AfterInvalidate || c.fragments.pending()
}

// maxDisbelieved is how often lost history is attributed to the driver. If the server reports it
// every time, the history is lost.
const maxDisbelieved = 5

// follow opens the stream and passes its events to the sink until the stream breaks. The error is
// nil after an invalidate.
func (c *cursor) follow(ctx context.Context) error {
	c.fresh = false
	c.fragments.drop()
	c.held = nil
	if err := c.resumeChunk(ctx); err != nil {
		return err
	}
	resuming := len(c.at.ResumeToken) > 0
	c.state = openState{opening: true, resuming: resuming, first: resuming}
	began := time.Now()
	stream, err := c.openStream(ctx)
	if err != nil {
		return err
	}
	defer closeCursor(ctx, stream)
	c.reader.open.Store(true)
	c.reader.current.Store(0)
	defer c.reader.open.Store(false)
	c.fresh, c.state.opening = true, false
	opened := stream.ID()
	c.confirmed, c.nextConfirm = len(c.at.ResumeToken) == 0, time.Time{}
	c.confirmBackoff = retry.Backoff{Initial: 5 * time.Second, Max: 5 * time.Minute}
	if len(c.at.ResumeToken) == 0 {
		stream.SetBatchSize(c.batch.requested) // it was opened with an empty response
	}
	// A mongos does not report before the first getMore that the oplog does not reach back to
	// START_AT, and a checkpoint there would hide a later START_AT.
	beginning, begun, requested := stream.ResumeToken(), len(c.at.ResumeToken) > 0, false
	if !begun && (c.reader.config.StartAt.IsZero() || c.fromNow) {
		if err := c.begin(ctx, beginning); err != nil {
			return err
		}
		begun = true
	}
	for {
		asked := stream.RemainingBatchLength() == 0
		there, err := c.next(ctx, stream)
		if err != nil {
			return err
		}
		if !begun && !there && !requested {
			requested = true // from now on: that the first batch is empty was the answer to the opening
			continue
		}
		if !begun {
			if err := c.begin(ctx, beginning); err != nil {
				return err
			}
			begun = true
		}
		c.state.answered = true
		if c.state.first {
			c.state.first = false
			c.reader.firstAnswer.Store(int64(time.Since(began)))
			c.reader.config.Metrics.answered(time.Since(began))
		}
		if !c.confirmed && stream.ID() != opened {
			return errResumed
		}
		if there {
			c.held = nil
			c.fresh, c.confirmed = false, true // an event proves that the server found the resume point
			if number, changed := c.batch.record(len(stream.Current)); changed {
				stream.SetBatchSize(number)
			}
			if asked {
				if _, err := c.readChunk(ctx, tokenTime(stream.Current.Lookup("_id").Document())); err != nil {
					return err
				}
			}
			invalidated, err := c.take(ctx, stream.Current)
			if err != nil || invalidated {
				return err
			}
			continue
		}
		if stream.ID() == 0 {
			return errEnded
		}
		if err := c.confirm(ctx); err != nil {
			return err
		}
		if !c.confirmed {
			continue
		}
		c.reader.current.Store(time.Now().UnixNano())
		if err := c.idleOrChunk(ctx, stream.ResumeToken()); err != nil {
			return err
		}
	}
}

// errResumed reports that the driver resumed from a later token before the resume point was
// confirmed. What follows proves nothing about the resume point, so the stream is opened again
// after the checkpoint.
var errResumed = errors.New("the driver opened the change stream again before it was known that the oplog holds the checkpoint")

// errHistoryGone reports that the oplog no longer holds the resume point, although the server
// continues as if it did.
var errHistoryGone = errors.New("the oplog begins after the checkpoint, and the server did not report that")

// confirm checks that the oplog holds the resume point, unless that is known. Without it, a token
// of an empty response must not be stored: a server may accept an event's token that its oplog has
// lost and report that there is nothing new (seen on MongoDB 4.4.1), and the lost changes would be
// skipped. The error is errHistoryGone; there is no error while the answer is unknown.
func (c *cursor) confirm(ctx context.Context) error {
	if c.confirmed || time.Now().Before(c.nextConfirm) {
		return nil
	}
	token := envelope.TokenText(c.at.ResumeToken)
	at := envelope.TokenTime(token)
	if at.IsZero() {
		return nil // the token has no time: the next event confirms it
	}
	// A change stream that starts there must scan as much as this one did, and no event is read
	// meanwhile.
	const least = 10 * time.Second
	ctx, cancel := context.WithTimeout(ctx, max(least, 2*c.reader.FirstAnswer()))
	defer cancel()
	// For a time without an event, servers have been seen to report at once that it is lost.
	reaches, err := oplog.Reaches(ctx, c.reader.collection, at, isHighWaterMark(token))
	c.nextConfirm = time.Now().Add(c.confirmBackoff.Next())
	switch {
	case err != nil:
		c.reader.log.Warn("it is unknown whether the oplog still holds the checkpoint; until it is known the checkpoint advances with events only",
			telemetry.KeyError, err, telemetry.KeyPosition, c.at.Position)
		return nil
	case !reaches:
		return errHistoryGone
	}
	c.confirmed = true
	return nil
}

// next advances to the next event, if there is one. If the last response is used up, it requests
// another.
func (c *cursor) next(ctx context.Context, stream *mongo.ChangeStream) (there bool, err error) {
	if stream.RemainingBatchLength() > 0 {
		return stream.TryNext(ctx), stream.Err()
	}
	err = c.request(ctx, func(ctx context.Context) error {
		there = stream.TryNext(ctx)
		return stream.Err()
	})
	return there, err
}

// request makes a request with a timeout. The timeout for the first response of a resumed stream
// doubles whenever that response is missing although the server answers a ping.
func (c *cursor) request(ctx context.Context, request func(ctx context.Context) error) error {
	const pingTimeout = 5 * time.Second
	r, limit := c.reader, c.timeout.limit
	if c.state.first {
		limit = max(limit, r.config.ResumeTimeout.current())
	}
	err := c.timeout.request(ctx, limit, request)
	if !c.state.first || !errors.Is(err, errNoResponse) {
		return err
	}
	ping, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	if r.collection.Database().Client().Ping(ping, nil) == nil {
		r.config.ResumeTimeout.grow(limit)
		r.log.Warn("MongoDB answers other requests but not the resumed change stream: it may be scanning many writes to other "+
			"collections; the next attempt gets twice the time", telemetry.KeyWait, limit.Milliseconds(), telemetry.KeyPosition, c.at.Position)
	}
	return err
}

// openStream opens the stream, with the stage that splits large events if the deployment supports
// it. The stage costs nothing until an event is too large, and then it is the only way to read it.
// Vendors report an unknown stage with different codes. So after any server error the stream is
// opened once more without the stage. If that succeeds, or fails because the next event is too
// large, and the first error was not transient, the stage is unsupported.
func (c *cursor) openStream(ctx context.Context) (*mongo.ChangeStream, error) {
	open := func(split bool) (stream *mongo.ChangeStream, err error) {
		c.splitting = split
		pipeline := c.reader.config.stages(c.at.Position)
		if split {
			pipeline = append(pipeline, bson.D{{Key: SplitStage, Value: bson.D{}}})
		}
		err = c.request(ctx, func(ctx context.Context) (err error) {
			stream, err = c.reader.collection.Watch(ctx, pipeline, c.options())
			return err
		})
		return stream, err
	}
	stream, err := open(c.trySplit)
	if _, server := errors.AsType[mongo.ServerError](err); !server || !c.trySplit {
		return stream, err
	}
	plain, plainErr := open(false)
	if (plainErr == nil || mongodb.HasCode(plainErr, mongodb.BSONObjectTooLarge)) && !mongodb.Passes(err) {
		c.trySplit = false
		c.reader.log.Info("the deployment does not split events larger than 16 MB: one would stop the stream", telemetry.KeyError, err)
	}
	return plain, plainErr
}

func (c *cursor) options() *options.ChangeStreamOptionsBuilder {
	config, wait := c.reader.config, awaitTime
	if c.backfilling() || c.beginsWithBackfill() {
		wait = backfillAwaitTime
	}
	o := options.ChangeStream().SetMaxAwaitTime(wait).SetBatchSize(c.batch.requested)
	full, before := config.documents(c.at.Position)
	if full != "" {
		o.SetFullDocument(full)
	}
	if before != "" {
		o.SetFullDocumentBeforeChange(before)
	}
	switch {
	case len(c.at.ResumeToken) > 0 && c.at.AfterInvalidate:
		o.SetStartAfter(c.resumeToken())
	case len(c.at.ResumeToken) > 0:
		o.SetResumeAfter(c.resumeToken())
	default:
		// An empty response: from a response with events, the driver has no token that precedes
		// them.
		o.SetBatchSize(0)
	}
	if len(c.at.ResumeToken) == 0 && !config.StartAt.IsZero() && !c.fromNow {
		o.SetStartAtOperationTime(&bson.Timestamp{T: uint32(config.StartAt.Unix())})
	}
	return o
}

// resumeToken returns the checkpoint's token in a version that the server accepts.
func (c *cursor) resumeToken() bson.Raw {
	if token, ok := OlderToken(c.at.ResumeToken); c.useTokenV1 && ok {
		return token
	}
	return c.at.ResumeToken
}

// resumesOlder reports whether to retry with the same token in version 1, after the server refused
// its version 2. That happens once.
func (c *cursor) resumesOlder(err error) bool {
	if _, ok := OlderToken(c.at.ResumeToken); c.useTokenV1 || !ok || !mongodb.HasCode(err, mongodb.ResumeTokenVersion) {
		return false
	}
	c.useTokenV1 = true
	c.reader.log.Info("the server is older than the one that wrote the resume token; resuming from the same token in the older version",
		telemetry.KeyPosition, c.at.Position)
	return true
}

// begin records where a new stream begins. That must be in the checkpoint before anything else: if
// this leader died before, the next one would begin later.
func (c *cursor) begin(ctx context.Context, token bson.Raw) error {
	if len(token) == 0 && (c.backfilling() || c.beginsWithBackfill()) {
		return &permanentError{fmt.Errorf("%w: the deployment returns no resume token before the first change", ErrSnapshotRefused)}
	}
	if len(token) == 0 {
		if !c.reader.tokenless.Swap(true) {
			c.reader.log.Warn("the deployment returns no resume token before the first change: until that is published, an interruption " +
				"makes the stream begin later (START_FROM=timestamp avoids that, if the deployment supports it)")
		}
		return nil
	}
	if c.beginsWithBackfill() {
		state, err := c.startBackfill(ctx, checkpoint.BackfillInitial, 0)
		if err != nil {
			return err
		}
		c.at.Backfill = state
	}
	return c.idleAt(ctx, token, c.sink.Begin)
}

// markTranslated records in the checkpoint that positions have another version than tokens, before
// the first such position is used: an earlier release that takes tokens for positions must not lead
// from then on.
func (c *cursor) markTranslated(ctx context.Context, after checkpoint.Progress) error {
	if !after.Translated || c.at.Translated {
		return nil
	}
	c.reader.log.Info("MongoDB writes its resume tokens in another version than this stream began with; positions keep the stream's version",
		telemetry.KeyPosition, after.Position)
	marked := c.at
	marked.Translated = true
	if err := c.sink.Begin(ctx, marked); err != nil {
		return err
	}
	c.at = marked
	return nil
}

// take passes one event to the sink. The errors are a permanentError, or errTorn.
func (c *cursor) take(ctx context.Context, part bson.Raw) (invalidated bool, err error) {
	event, identity, err := c.fragments.addFragment(part)
	switch {
	case errors.Is(err, errTorn):
		return false, err
	case err != nil:
		return false, &permanentError{err}
	case event == nil:
		return false, nil // more fragments follow
	}
	token := event.Lookup("_id").Document()
	after := checkpoint.Progress{ResumeToken: bytes.Clone(token), Published: c.at.Published, Backfill: c.carry()}
	operation, _ := event.Lookup("operationType").StringValueOK()
	whole := identity
	identity, position, err := c.numbering.next(c.at, whole, operation)
	// it came in fragments; this is the last
	if after.Position = position; err == nil && envelope.TokenText(token) != whole {
		_, after.Position, err = c.numbering.next(c.at, envelope.TokenText(token), operation)
	}
	if err != nil {
		return false, &permanentError{err}
	}
	if Counted(after.Position) {
		after.Settings = c.numbering.settings
	}
	after.Translated = Translated(after.Position, envelope.TokenText(token))
	if t, i, ok := event.Lookup("clusterTime").TimestampOK(); ok {
		after.ClusterTime = bson.Timestamp{T: t, I: i}
	}
	if err := c.markTranslated(ctx, after); err != nil {
		return false, &permanentError{err}
	}
	switch c.reader.config.Mapping.kind(operation) {
	case change:
		if !c.covered(event, operation) {
			c.reader.config.Metrics.suppressed()
			err = c.sink.Idle(ctx, after)
			break
		}
		mapped, mapErr := c.reader.config.Mapping.change(event, identity, position)
		if mapErr != nil {
			return false, &permanentError{mapErr}
		}
		err = c.sink.Change(ctx, mapped, after)
	case collection:
		if err = c.endOfCollection(event, operation, after.Position); err == nil {
			err = c.sink.Idle(ctx, after)
		}
	case invalidate:
		invalidated, after.AfterInvalidate = true, true
		err = c.sink.Idle(ctx, after)
	case passed:
		err = c.sink.Idle(ctx, after)
	case unknown:
		err = fmt.Errorf("%w: %q at %s: upgrade, or take the checkpoint past it", ErrUnknownOperation, operation, after.Position)
	}
	if err != nil {
		return false, &permanentError{err}
	}
	c.at = after
	return invalidated, nil
}

// endOfCollection reports an event after which the watched collection is gone or another one. The
// error is [ErrReplaced].
func (c *cursor) endOfCollection(event bson.Raw, operation, position string) error {
	r := c.reader
	if operation != "rename" || !c.replaces(event) {
		r.log.Warn("the watched collection was dropped or renamed; no events are published for the documents that it contained",
			telemetry.KeyReason, operation, telemetry.KeyPosition, position)
		return nil
	}
	r.config.Metrics.replacedCollection()
	name, ok := event.Lookup("ns", "coll").StringValueOK()
	if !ok {
		name = "another collection"
	}
	r.log.Error("the watched collection was replaced: the documents that came with the new one are not in the change stream",
		telemetry.KeyReason, "renamed from "+name, telemetry.KeyPosition, position)
	if r.config.ContinueWhenReplaced {
		return nil
	}
	return fmt.Errorf("%w (renamed from %s, at %s)", ErrReplaced, name, terminal.Shorten(position))
}

// replaces reports whether a rename gave the watched collection's name to another collection, as
// renameCollection and $out do. It returns true if PIPELINE removes the new name, so that the
// answer is unknown.
func (c *cursor) replaces(event bson.Raw) bool {
	to, ok := event.Lookup("to").DocumentOK()
	if !ok {
		return true
	}
	db, _ := to.Lookup("db").StringValueOK()
	coll, _ := to.Lookup("coll").StringValueOK()
	return db == c.reader.collection.Database().Name() && coll == c.reader.collection.Name()
}

// idle records that there is no event up to token.
func (c *cursor) idle(ctx context.Context, token bson.Raw) error {
	if len(token) == 0 || c.fragments.pending() || bytes.Equal(token, c.at.ResumeToken) {
		return nil // the deployment returns no token while idle, or the same one
	}
	return c.idleAt(ctx, token, c.sink.Idle)
}

// idleAt passes the progress of a token without an event to the sink.
func (c *cursor) idleAt(ctx context.Context, token bson.Raw, to func(context.Context, checkpoint.Progress) error) error {
	position, err := c.numbering.idle(c.at, envelope.TokenText(token))
	if err != nil {
		return &permanentError{err}
	}
	after := c.at
	after.ResumeToken, after.Position, after.AfterInvalidate = bytes.Clone(token), position, false
	if after.Backfill = c.carry(); after.Backfill != nil && after.Backfill.Form == "" {
		if Counted(position) {
			return &permanentError{fmt.Errorf("%w: positions are counted on this deployment, and no position stands for a moment of the source", ErrSnapshotRefused)}
		}
		state := *after.Backfill
		state.Form = envelope.TokenForm(position)
		after.Backfill = &state
	}
	after.Translated = Translated(position, envelope.TokenText(token))
	if Counted(position) {
		after.Settings = c.numbering.settings
	}
	if err := c.markTranslated(ctx, after); err != nil {
		return &permanentError{err}
	}
	if err := to(ctx, after); err != nil {
		return &permanentError{err}
	}
	c.at = after
	return nil
}

// errEnded reports that the server closed its cursor without an invalidate event.
var errEnded = errors.New("the server ended the change stream without an invalidate event")

// closeCursor closes the server's cursor, with a short timeout because the server may be
// unreachable.
func closeCursor(ctx context.Context, cursor interface{ Close(context.Context) error }) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = cursor.Close(ctx)
}
