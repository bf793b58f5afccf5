package pipeline

import (
	"context"
	"time"

	"github.com/sluice-cdc/sluice/projector/internal/apply"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/shared/retry"
	"github.com/sluice-cdc/sluice/shared/telemetry"
	"github.com/sluice-cdc/sluice/shared/terminal"
)

// logDecision logs what an operator should know of one change. The record of a parking is committed by then.
func (p *Pipeline) logDecision(session string, c *envelope.Change, r apply.Result) {
	attributes := []any{
		telemetry.KeyAggregate, c.Aggregate, telemetry.KeySession, session, telemetry.KeyMessageID, c.MessageID,
		telemetry.KeyPosition, c.Position, telemetry.KeyReason, r.Reason,
	}
	switch r.Kind {
	case apply.Poison:
		if !r.Recorded {
			return
		}
		if c.Aggregate == "" {
			p.opts.Logger.Warn("event dead-lettered; its message names no aggregate, so none is parked", append(attributes, telemetry.KeyDescription, r.Description)...)
			return
		}
		p.opts.Logger.Warn("aggregate parked: an event could not be applied; its events wait in the dead-letter queue until it is replayed",
			append(attributes, telemetry.KeyDescription, r.Description, telemetry.KeyToDo, terminal.Paste(c.Aggregate, p.opts.Program, "parked show"))...)
		if r.Stack != "" {
			p.opts.Logger.Error("the projection panicked", telemetry.KeyAggregate, c.Aggregate, telemetry.KeyMessageID, c.MessageID,
				telemetry.KeyDescription, r.Description, telemetry.KeyStack, r.Stack)
		}
	case apply.Parked:
		p.opts.Logger.Debug("event dead-lettered behind the one that parked its aggregate", attributes...)
	case apply.Gap:
		p.opts.Logger.Debug("event waits for an earlier version", append(attributes, telemetry.KeyDescription, r.Description)...)
	case apply.Pending, apply.Applied, apply.Duplicate:
	}
}

// countParked keeps the number of parked aggregates up to date until ctx ends. The index makes counting cheap; without it the whole
// collection is read, and therefore less often.
func (p *Pipeline) countParked(ctx context.Context) {
	indexed := p.indexParked(ctx)
	every := 15 * time.Second
	if !indexed {
		every = 10 * time.Minute
	}
	for {
		attempt, cancel := context.WithTimeout(ctx, every)
		n, err := p.opts.Applier.Count(attempt)
		cancel()
		switch {
		case err == nil:
			p.metrics.countedParked(n)
		case ctx.Err() == nil:
			p.opts.Logger.Debug("parked aggregates not counted", telemetry.KeyError, err)
		}
		select {
		case <-ctx.Done():
			return
		case <-p.metrics.newlyParked:
		case <-time.After(every):
		}
	}
}

// indexParked creates the index, and retries while the database is away. Without the right to create it, everything works, but
// slower.
func (p *Pipeline) indexParked(ctx context.Context) bool {
	var backoff retry.Backoff
	for {
		err := p.opts.Applier.Index(ctx)
		switch {
		case err == nil:
			return true
		case apply.Refused(err):
			p.opts.Logger.Warn("the index of parked aggregates cannot be created; they are found by reading the whole collection, which is slow. "+
				"Grant createIndex on it, or create the index yourself", telemetry.KeyError, err)
			return false
		case backoff.Wait(ctx) != nil:
			return false
		}
	}
}
