package changes

import (
	"bytes"
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/producer/internal/checkpoint"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/shared/telemetry"
)

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
		state, err := c.startBackfill(ctx, checkpoint.BackfillInitial, nil)
		if err != nil {
			return err
		}
		c.at.Backfill = state
	}
	return c.idleAt(ctx, token, c.sink.Begin)
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
	after.ResumeToken, after.AfterInvalidate = bytes.Clone(token), false
	if after.Backfill = c.carry(); after.Backfill != nil && after.Backfill.Form == "" {
		if Counted(position) {
			return &permanentError{fmt.Errorf("%w: positions are counted on this deployment, and no position stands for a moment of the source", ErrSnapshotRefused)}
		}
		state := *after.Backfill
		state.Form = envelope.TokenForm(position)
		after.Backfill = &state
	}
	if err := c.place(ctx, &after, envelope.TokenText(token), position); err != nil {
		return err
	}
	return c.pass(ctx, after, to)
}

// pass passes progress that needs nothing to be published to a method of the sink. The error is a
// permanentError.
func (c *cursor) pass(ctx context.Context, after checkpoint.Progress, to func(context.Context, checkpoint.Progress) error) error {
	if err := to(ctx, after); err != nil {
		return &permanentError{err}
	}
	c.at = after
	return nil
}

// place gives progress its position; token is the text of its token. It records in the checkpoint
// that positions have another version than tokens, before the first such position is used: an
// earlier release that takes tokens for positions must not lead from then on. The error is a
// permanentError.
func (c *cursor) place(ctx context.Context, after *checkpoint.Progress, token, position string) error {
	after.Position, after.Translated = position, Translated(position, token)
	if Counted(position) {
		after.Settings = c.numbering.settings
	}
	if !after.Translated || c.at.Translated {
		return nil
	}
	c.reader.log.Info("MongoDB writes its resume tokens in another version than this stream began with; positions keep the stream's version",
		telemetry.KeyPosition, after.Position)
	marked := c.at
	marked.Translated = true
	return c.pass(ctx, marked, c.sink.Begin)
}
