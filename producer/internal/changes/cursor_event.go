package changes

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/producer/internal/checkpoint"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/shared/telemetry"
	"github.com/sluice-cdc/sluice/shared/terminal"
)

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
	whole, last := identity, envelope.TokenText(token)
	identity, position, err := c.numbering.next(c.at, whole, operation)
	end := position
	if err == nil && last != whole { // it came in fragments
		_, end, err = c.numbering.next(c.at, last, operation)
	}
	if err != nil {
		return false, &permanentError{err}
	}
	if t, i, ok := event.Lookup("clusterTime").TimestampOK(); ok {
		after.ClusterTime = bson.Timestamp{T: t, I: i}
	}
	if err := c.place(ctx, &after, last, end); err != nil {
		return false, err
	}
	switch c.reader.config.Mapping.kind(operation) {
	case change:
		if !c.covered(event, operation) {
			c.reader.config.Metrics.leftOut.Inc()
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
	r.config.Metrics.replaced.Inc()
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
