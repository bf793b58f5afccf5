package changes

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-cdc/sluice/producer/internal/checkpoint"
	"github.com/sluice-cdc/sluice/shared/telemetry"
)

// Requests holds what an operator requests of the stream's snapshot. The reader calls it from one
// goroutine; its methods return at once.
type Requests interface {
	// Waiting returns the request that waits for an answer; nil without one.
	Waiting() *checkpoint.Request
	// Answer records that the request is in the checkpoint, or refused with an error.
	Answer(r *checkpoint.Request, refused error)
}

// errRefused is why a request is not carried out.
type errRefused struct{ reason string }

func (e *errRefused) Error() string { return e.reason }

// errSnapshotChanged reports that a snapshot began, was paused, resumed or stopped, or is complete:
// the stream is opened again with the waits that suit.
var errSnapshotChanged = errors.New("the snapshot has changed")

// handleRequest carries out the request that waits, if there is one. What it changes is in the
// checkpoint before the request is answered; a successor that finds the request again finds nothing
// to do. Errors: errSnapshotChanged, or an error after which the request is tried again.
func (c *cursor) handleRequest(ctx context.Context) error {
	if len(c.at.ResumeToken) == 0 {
		return nil // a stream begins before it is changed
	}
	r := c.reader.config.Requests.Waiting()
	if r == nil {
		return nil
	}
	state, err := c.requested(ctx, r)
	if refused, ok := errors.AsType[*errRefused](err); ok {
		c.reader.log.Warn("an operator's request for the snapshot is refused", telemetry.KeyReason, string(r.Command), telemetry.KeyError, refused)
		c.reader.config.Requests.Answer(r, refused)
		return nil
	}
	if err != nil {
		return err
	}
	if state == c.at.Backfill {
		c.reader.config.Requests.Answer(r, nil)
		return nil
	}
	if err := c.setBackfill(ctx, state); err != nil {
		return err
	}
	c.reader.config.Metrics.backfill(state)
	c.reader.config.Requests.Answer(r, nil)
	c.reader.log.Info("an operator's request for the snapshot is carried out", telemetry.KeyReason, string(r.Command), telemetry.KeyCount, state.Rows)
	return errSnapshotChanged
}

// requested returns the state of the snapshot after a request: the present one if there is nothing
// to do. Errors: *errRefused, or the server's.
func (c *cursor) requested(ctx context.Context, r *checkpoint.Request) (*checkpoint.Backfill, error) {
	if r.Command == checkpoint.RequestStart {
		return c.requestedStart(ctx, r)
	}
	if !c.backfilling() {
		return c.at.Backfill, nil // it is complete, or was stopped
	}
	state := *c.at.Backfill
	switch r.Command {
	case checkpoint.RequestPause:
		if state.Paused {
			return c.at.Backfill, nil
		}
		state.Paused = true
	case checkpoint.RequestResume:
		if !state.Paused {
			return c.at.Backfill, nil
		}
		state.Paused, state.ResumedAt, state.ResumedRows = false, time.Now(), state.Rows
	case checkpoint.RequestContinue:
		if state.AcceptRepeats {
			return c.at.Backfill, nil
		}
		state.AcceptRepeats = true
	case checkpoint.RequestStop:
		if state.Suppresses() {
			return nil, &errRefused{"changes of documents that the snapshot has not reached were left out, and would be lost: it can be paused, not stopped"}
		}
		state.Chunk, state.Done = nil, true
	default:
		return nil, &errRefused{fmt.Sprintf("this version does not know the request %q: deploy the version of the command", r.Command)}
	}
	return &state, nil
}

func (c *cursor) requestedStart(ctx context.Context, r *checkpoint.Request) (*checkpoint.Backfill, error) {
	mode := checkpoint.BackfillRequested
	if len(r.Aggregates) > 0 {
		mode = checkpoint.BackfillAggregates
	}
	switch {
	case c.backfilling() && c.at.Backfill.ID == r.ID:
		return c.at.Backfill, nil // by this leader's predecessor
	case c.backfilling():
		return nil, &errRefused{"another snapshot is being published: `producer snapshot status`"}
	case Counted(c.at.Position):
		return nil, &errRefused{"positions are counted on this deployment, and no position stands for a moment of the source"}
	}
	err := c.reader.config.CheckBackfill(true)
	if err == nil && mode == checkpoint.BackfillAggregates {
		err = c.reader.config.CheckAggregates()
	}
	if err != nil {
		return nil, &errRefused{err.Error()}
	}
	state, err := c.startBackfill(ctx, mode, r.Aggregates)
	switch {
	case ctx.Err() != nil:
		return nil, err
	case err != nil: // it must not hold up the stream
		return nil, &errRefused{err.Error()}
	}
	state.ID, state.Rate, state.Form = r.ID, r.Rate, c.at.Form()
	return state, nil
}
