package changes

import (
	"context"
	"errors"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/producer/internal/checkpoint"
	"github.com/sluice-cdc/sluice/producer/internal/oplog"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/shared/mongodb"
	"github.com/sluice-cdc/sluice/shared/retry"
	"github.com/sluice-cdc/sluice/shared/telemetry"
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
	// heals reports whether the history was lost and a snapshot is to replace it, which has not
	// begun yet.
	heals bool
	// trySplit requests that the server splits large events; false once it has refused.
	trySplit   bool
	splitting  bool // the open stream splits large events
	useTokenV1 bool // the server accepts tokens of version 1 only
	fragments  fragments
	batch      *batchSizer
	timeout    responseTimeout
	empties    emptyResponses
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
	if err := c.prepare(ctx); err != nil {
		return err
	}
	began := time.Now()
	stream, err := c.openStream(ctx)
	if err != nil {
		return err
	}
	defer mongodb.CloseCursor(ctx, stream)
	events := &responses{stream: stream, batch: c.batch}
	defer events.stop()
	c.reader.open.Store(true)
	defer c.reader.open.Store(false)
	id, isNew := stream.ID(), len(c.at.ResumeToken) == 0
	c.opened(isNew)
	if isNew {
		stream.SetBatchSize(c.batch.requested) // it was opened with an empty response
	}
	// A mongos does not report before the first getMore that the oplog does not reach back to
	// START_AT, and a checkpoint there would hide a later START_AT.
	beginning, begun := stream.ResumeToken(), !isNew
	if isNew && (c.reader.config.StartAt.IsZero() || c.fromNow) {
		if err := c.begin(ctx, beginning); err != nil {
			return err
		}
		begun = true
	}
	for first := true; ; first = false {
		asked := !events.more()
		event, err := c.next(ctx, events)
		if err != nil {
			return err
		}
		if !begun && first && event == nil {
			continue // that the first batch is empty was the answer to the opening
		}
		if !begun {
			if err := c.begin(ctx, beginning); err != nil {
				return err
			}
			begun = true
		}
		c.answered(began)
		if !c.confirmed && stream.ID() != id {
			return errResumed
		}
		if asked && !c.fragments.pending() {
			if err := c.handleRequest(ctx); err != nil {
				return err
			}
		}
		if event == nil {
			if err := c.caughtUp(ctx, events); err != nil {
				return err
			}
			continue
		}
		invalidated, err := c.receive(ctx, event, asked)
		if err != nil || invalidated {
			return err
		}
	}
}

// prepare does what must be done before the stream is opened: it begins the snapshot that replaces
// lost history, handles an operator's request, and publishes the rest of a chunk.
func (c *cursor) prepare(ctx context.Context) error {
	c.fresh = false
	c.fragments.drop()
	c.held = nil
	c.state = openState{}
	if c.heals {
		if err := c.healWithBackfill(ctx); err != nil {
			return err
		}
	}
	if err := c.handleRequest(ctx); err != nil && !errors.Is(err, errSnapshotChanged) {
		return err
	}
	if err := c.resumeChunk(ctx); err != nil {
		return err
	}
	resuming := len(c.at.ResumeToken) > 0
	c.state = openState{opening: true, resuming: resuming, first: resuming}
	return nil
}

// opened notes that the server has opened the stream. A new stream has no resume point to confirm.
func (c *cursor) opened(isNew bool) {
	c.reader.current.Store(0)
	c.fresh, c.state.opening = true, false
	c.confirmed, c.nextConfirm = isNew, time.Time{}
	c.confirmBackoff = retry.Backoff{Initial: 5 * time.Second, Max: 5 * time.Minute}
}

// answered notes a response of a stream whose opening began at the given time.
func (c *cursor) answered(began time.Time) {
	c.state.answered = true
	if c.state.first {
		c.state.first = false
		took := time.Since(began)
		c.reader.firstAnswer.Store(int64(took))
		c.reader.config.ResumeTimeout.setTwice(took)
		c.reader.config.Metrics.first.Observe(took.Seconds())
	}
}

// receive takes an event. Before the first event of a response (asked), it publishes the next chunk
// of a snapshot.
func (c *cursor) receive(ctx context.Context, event bson.Raw, asked bool) (invalidated bool, err error) {
	c.held = nil
	c.fresh, c.confirmed = false, true // an event proves that the server found the resume point
	if asked {
		if _, err := c.readChunk(ctx, tokenTime(event.Lookup("_id").Document())); err != nil {
			return false, err
		}
	}
	return c.take(ctx, event)
}

// caughtUp records how far the stream has been read, after an empty response.
func (c *cursor) caughtUp(ctx context.Context, events *responses) error {
	if events.stream.ID() == 0 {
		return errEnded
	}
	if err := c.confirm(ctx); err != nil || !c.confirmed {
		return err
	}
	c.reader.current.Store(events.latest.arrived.UnixNano())
	return c.idleOrChunk(ctx, events.stream.ResumeToken())
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

// next returns the next event, or nil if the response has none. If the last response is used up, it
// waits for another.
func (c *cursor) next(ctx context.Context, events *responses) (event bson.Raw, err error) {
	if !events.more() {
		events.request(ctx)
		err := c.request(ctx, events.await)
		if err == nil && !events.more() {
			return nil, c.empties.pause(ctx, events.latest.arrived.Sub(events.latest.began))
		}
		c.empties.early = 0
		if err != nil {
			return nil, err
		}
	}
	return events.next(ctx, c.confirmed)
}

// emptyResponses counts consecutive responses that are empty and early, and pauses after several: a
// deployment that ignores how long it may wait for an event would otherwise be asked as fast as it
// answers. One that waits is never paused for: a mongos sends one such response at the beginning.
type emptyResponses struct {
	await time.Duration // how long the server may wait
	early int
}

// pause records an empty response, and waits if needed. The error is that of ctx.
func (e *emptyResponses) pause(ctx context.Context, took time.Duration) error {
	const tolerated = 3
	if took >= e.await/4 {
		e.early = 0
		return nil
	}
	if e.early++; e.early <= tolerated {
		return nil
	}
	return retry.Sleep(ctx, e.await/20)
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
		r.config.ResumeTimeout.setTwice(limit)
		r.log.Warn("MongoDB answers other requests but not the resumed change stream: it may be scanning many writes to other "+
			"collections; the next attempt gets twice the time", telemetry.KeyWait, limit.Milliseconds(), telemetry.KeyPosition, c.at.Position)
	}
	return err
}

// errEnded reports that the server closed its cursor without an invalidate event.
var errEnded = errors.New("the server ended the change stream without an invalidate event")
