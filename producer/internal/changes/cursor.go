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

// awaitTime is how long the server waits for an event before it gives an empty answer. So an idle stream's token moves on at least
// this often.
const awaitTime = time.Second

// cursor reads a stream and knows how far it has read, over as many server cursors as that takes. It belongs to one goroutine.
type cursor struct {
	reader    *Reader
	sink      Sink
	numbering numbering
	at        checkpoint.Progress
	// fresh: no event has come since the server cursor was opened.
	fresh   bool
	attempt attempt // the one under way
	doubts  int     // how often a report of lost history was not believed since it last made progress
	// confirmed: the server is known to hold everything after the resume point, since the server cursor was opened.
	confirmed bool
	askAgain  time.Time // before that it is not asked whether it does
	doubt     retry.Backoff
	// fromNow: the history is lost, so START_AT no longer counts.
	fromNow bool
	// split: the server is asked to split large events; false once it has refused.
	split   bool
	splits  bool // the stream that is open was opened so
	older   bool // the server is resumed by tokens of version 1 alone
	partial fragments
	answers *answers
	silence silence
	trouble trouble
}

// misresumed says that the driver may have resumed where only a new stream can go on: after an invalidate with resumeAfter,
// which servers refuse (when the first answer is an error, the driver forgets that the stream was opened with startAfter); or in the
// middle of a split event that is now split differently.
func (c *cursor) misresumed() bool { return c.fresh && c.at.AfterInvalidate || c.partial.pending() }

// mostDoubts bounds how often lost history is blamed on the driver. If the server reports it every time, the history is lost.
const mostDoubts = 5

// follow opens the stream and passes on its events until it breaks. The error is nil after an invalidate.
func (c *cursor) follow(ctx context.Context) error {
	c.fresh = false
	c.partial.drop()
	resuming := len(c.at.ResumeToken) > 0
	c.attempt = attempt{opening: true, resuming: resuming, first: resuming}
	began := time.Now()
	stream, err := c.openStream(ctx)
	if err != nil {
		return err
	}
	defer closeStream(ctx, stream)
	c.reader.open.Store(true)
	c.reader.current.Store(0)
	defer c.reader.open.Store(false)
	c.fresh, c.attempt.opening = true, false
	opened := stream.ID()
	c.confirmed, c.askAgain = len(c.at.ResumeToken) == 0, time.Time{}
	c.doubt = retry.Backoff{Initial: 5 * time.Second, Max: 5 * time.Minute}
	if len(c.at.ResumeToken) == 0 {
		stream.SetBatchSize(c.answers.asked) // it was opened with an empty answer
		if err := c.begin(ctx, stream.ResumeToken()); err != nil {
			return err
		}
	}
	for {
		there, err := c.next(ctx, stream)
		if err != nil {
			return err
		}
		c.attempt.answered = true
		if c.attempt.first {
			c.attempt.first = false
			c.reader.firstAnswer.Store(int64(time.Since(began)))
			c.reader.config.Metrics.answered(time.Since(began))
		}
		if !c.confirmed && stream.ID() != opened {
			return errResumed
		}
		if there {
			c.fresh, c.confirmed = false, true // to give an event, the server has to have found the resume point
			if number, changed := c.answers.took(len(stream.Current)); changed {
				stream.SetBatchSize(number)
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
		if err := c.idle(ctx, stream.ResumeToken()); err != nil {
			return err
		}
	}
}

// errResumed: before the resume point was confirmed the driver went on behind a token that it has seen since. What comes then says nothing about
// the resume point, so the stream is opened again behind the checkpoint.
var errResumed = errors.New("the driver opened the change stream again before it was known that the oplog holds the checkpoint")

// errForgotten: the oplog no longer holds the resume point, although the server goes on as if it did.
var errForgotten = errors.New("the oplog begins behind the checkpoint, and the server did not say so")

// confirm asks whether the oplog holds the resume point, unless that is known. Without it a token that says "nothing up to here" must
// not be kept: a server may accept an event's token that its oplog has forgotten and say just that (seen on MongoDB 4.4.1), and what was
// lost in between would have been passed over. The error is errForgotten; while nothing is known there is none.
func (c *cursor) confirm(ctx context.Context) error {
	if c.confirmed || time.Now().Before(c.askAgain) {
		return nil
	}
	token := envelope.TokenText(c.at.ResumeToken)
	at := envelope.TokenTime(token)
	if at.IsZero() {
		return nil // the token tells no time: the next event confirms it
	}
	// A change stream that begins there has as much to look through as this one had, and no event is read meanwhile.
	const least = 10 * time.Second
	ctx, cancel := context.WithTimeout(ctx, max(least, 2*c.reader.FirstAnswer()))
	defer cancel()
	// Of a moment that is no event's, servers have been seen to say at once that it is forgotten.
	reaches, err := oplog.Reaches(ctx, c.reader.collection, at, isMark(token))
	c.askAgain = time.Now().Add(c.doubt.Next())
	switch {
	case err != nil:
		c.reader.log.Warn("cannot tell whether the oplog still holds the checkpoint; until then the checkpoint moves with events alone",
			telemetry.KeyError, err, telemetry.KeyPosition, c.at.Position)
		return nil
	case !reaches:
		return errForgotten
	}
	c.confirmed = true
	return nil
}

// next moves to the next event, if there is one. When the last answer is used up it asks for another.
func (c *cursor) next(ctx context.Context, stream *mongo.ChangeStream) (there bool, err error) {
	if stream.RemainingBatchLength() > 0 {
		return stream.TryNext(ctx), stream.Err()
	}
	err = c.ask(ctx, func(ctx context.Context) error {
		there = stream.TryNext(ctx)
		return stream.Err()
	})
	return there, err
}

// ask makes a request, which times out. The first answer of a stream that resumes may take longer, each time that it did not come while
// the server answered otherwise.
func (c *cursor) ask(ctx context.Context, request func(ctx context.Context) error) error {
	const pingTimeout = 5 * time.Second
	r, limit := c.reader, c.silence.limit
	if c.attempt.first {
		limit = max(limit, r.config.Patience.now())
	}
	err := c.silence.ask(ctx, limit, request)
	if !c.attempt.first || !errors.Is(err, errNoAnswer) {
		return err
	}
	ping, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	if r.collection.Database().Client().Ping(ping, nil) == nil {
		r.config.Patience.grow(limit)
		r.log.Warn("MongoDB does not answer the change stream that resumes, and answers otherwise: it may be looking through much that was "+
			"written elsewhere; it gets twice the time the next time", telemetry.KeyWait, limit.Milliseconds(), telemetry.KeyPosition, c.at.Position)
	}
	return err
}

// openStream opens the stream, with the stage that splits large events where the deployment knows it: the stage costs nothing until
// an event is too large, and then there is no other way to read it. What is said about a stage that is not known differs from vendor to
// vendor, so after any error of the server the stream is opened without the stage; if that works, or fails because the next event is too
// large, and the error was none that passes, the stage was what it did not know.
func (c *cursor) openStream(ctx context.Context) (*mongo.ChangeStream, error) {
	open := func(split bool) (stream *mongo.ChangeStream, err error) {
		c.splits = split
		pipeline := c.reader.config.stages(c.at.Position)
		if split {
			pipeline = append(pipeline, bson.D{{Key: SplitStage, Value: bson.D{}}})
		}
		err = c.ask(ctx, func(ctx context.Context) (err error) {
			stream, err = c.reader.collection.Watch(ctx, pipeline, c.options())
			return err
		})
		return stream, err
	}
	stream, err := open(c.split)
	if _, server := errors.AsType[mongo.ServerError](err); !server || !c.split {
		return stream, err
	}
	plain, plainErr := open(false)
	if (plainErr == nil || mongodb.HasCode(plainErr, mongodb.BSONObjectTooLarge)) && !mongodb.Passes(err) {
		c.split = false
		c.reader.log.Info("the deployment does not split events larger than 16 MB: one would stop the stream", telemetry.KeyError, err)
	}
	return plain, plainErr
}

func (c *cursor) options() *options.ChangeStreamOptionsBuilder {
	config := c.reader.config
	o := options.ChangeStream().SetMaxAwaitTime(awaitTime).SetBatchSize(c.answers.asked)
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
		// An empty answer: of an answer with events the driver has no token from before them.
		o.SetBatchSize(0)
	}
	if len(c.at.ResumeToken) == 0 && !config.StartAt.IsZero() && !c.fromNow {
		o.SetStartAtOperationTime(&bson.Timestamp{T: uint32(config.StartAt.Unix())})
	}
	return o
}

// resumeToken is the checkpoint's token as the server takes it.
func (c *cursor) resumeToken() bson.Raw {
	if token, ok := OlderToken(c.at.ResumeToken); c.older && ok {
		return token
	}
	return c.at.ResumeToken
}

// resumesOlder reports whether the server's refusal of a token of version 2 is answered by that token in version 1. It is, once.
func (c *cursor) resumesOlder(err error) bool {
	if _, ok := OlderToken(c.at.ResumeToken); c.older || !ok || !mongodb.HasCode(err, mongodb.ResumeTokenVersion) {
		return false
	}
	c.older = true
	c.reader.log.Info("the server is older than the one that wrote the resume token; resuming by the same token in the older form",
		telemetry.KeyPosition, c.at.Position)
	return true
}

// begin records where a new stream begins. That must be in the checkpoint before anything else: otherwise, if this leader dies now,
// the next one begins later.
func (c *cursor) begin(ctx context.Context, token bson.Raw) error {
	if len(token) == 0 {
		if !c.reader.tokenless.Swap(true) {
			c.reader.log.Warn("the deployment gives no resume token before the first change: until that is published, an interruption " +
				"makes the stream begin later (START_FROM=timestamp would not, where the deployment takes it)")
		}
		return nil
	}
	return c.pass(ctx, token, c.sink.Begin)
}

// announce has the checkpoint say that positions have another form than tokens before anything goes by such a position: a version that
// takes tokens for positions must not lead from then on.
func (c *cursor) announce(ctx context.Context, after checkpoint.Progress) error {
	if !after.Translated || c.at.Translated {
		return nil
	}
	c.reader.log.Info("MongoDB writes its resume tokens in another form than this stream began with; positions keep the stream's",
		telemetry.KeyPosition, after.Position)
	marked := c.at
	marked.Translated = true
	if err := c.sink.Begin(ctx, marked); err != nil {
		return err
	}
	c.at = marked
	return nil
}

// take passes one event on to the sink. The errors are refusals, or errTorn.
func (c *cursor) take(ctx context.Context, part bson.Raw) (invalidated bool, err error) {
	event, identity, err := c.partial.addFragment(part)
	switch {
	case errors.Is(err, errTorn):
		return false, err
	case err != nil:
		return false, &refusal{err}
	case event == nil:
		return false, nil // more fragments follow
	}
	token := event.Lookup("_id").Document()
	after := checkpoint.Progress{ResumeToken: bytes.Clone(token), Published: c.at.Published}
	operation, _ := event.Lookup("operationType").StringValueOK()
	whole := identity
	identity, position, err := c.numbering.event(c.at, whole, operation)
	if after.Position = position; err == nil && envelope.TokenText(token) != whole { // it came in fragments; this is the last
		_, after.Position, err = c.numbering.event(c.at, envelope.TokenText(token), operation)
	}
	if err != nil {
		return false, &refusal{err}
	}
	if Counted(after.Position) {
		after.Settings = c.numbering.settings
	}
	after.Translated = Translated(after.Position, envelope.TokenText(token))
	if t, i, ok := event.Lookup("clusterTime").TimestampOK(); ok {
		after.ClusterTime = bson.Timestamp{T: t, I: i}
	}
	if err := c.announce(ctx, after); err != nil {
		return false, &refusal{err}
	}
	switch c.reader.config.Mapping.kind(operation) {
	case change:
		mapped, mapErr := c.reader.config.Mapping.change(event, identity, position)
		if mapErr != nil {
			return false, &refusal{mapErr}
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
		return false, &refusal{err}
	}
	c.at = after
	return invalidated, nil
}

// endOfCollection tells of an event after which the watched collection is another one or none. The error is [ErrReplaced].
func (c *cursor) endOfCollection(event bson.Raw, operation, position string) error {
	r := c.reader
	if operation != "rename" || !c.replaces(event) {
		r.log.Warn("the watched collection was dropped or renamed; no events are published for the documents that went with it",
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

// replaces says that a rename gave the watched collection's name to another one, as renameCollection and $out do. A PIPELINE that takes
// the new name away does not let one tell: then it may be.
func (c *cursor) replaces(event bson.Raw) bool {
	to, ok := event.Lookup("to").DocumentOK()
	if !ok {
		return true
	}
	db, _ := to.Lookup("db").StringValueOK()
	coll, _ := to.Lookup("coll").StringValueOK()
	return db == c.reader.collection.Database().Name() && coll == c.reader.collection.Name()
}

// idle records that, as the server says, there is no event up to token.
func (c *cursor) idle(ctx context.Context, token bson.Raw) error {
	if len(token) == 0 || c.partial.pending() || bytes.Equal(token, c.at.ResumeToken) {
		return nil // the deployment gives no token while idle, or the same one
	}
	return c.pass(ctx, token, c.sink.Idle)
}

// pass gives the sink the progress that a token makes to which no event belongs.
func (c *cursor) pass(ctx context.Context, token bson.Raw, to func(context.Context, checkpoint.Progress) error) error {
	position, err := c.numbering.idle(c.at, envelope.TokenText(token))
	if err != nil {
		return &refusal{err}
	}
	after := c.at
	after.ResumeToken, after.Position, after.AfterInvalidate = bytes.Clone(token), position, false
	after.Translated = Translated(position, envelope.TokenText(token))
	if Counted(position) {
		after.Settings = c.numbering.settings
	}
	if err := c.announce(ctx, after); err != nil {
		return &refusal{err}
	}
	if err := to(ctx, after); err != nil {
		return &refusal{err}
	}
	c.at = after
	return nil
}

// errEnded: the server closed its cursor, and no invalidate event said why.
var errEnded = errors.New("the server ended the change stream without an invalidate event")

// closeStream frees the server's cursor, briefly: it may be the server that is gone.
func closeStream(ctx context.Context, stream *mongo.ChangeStream) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = stream.Close(ctx)
}
