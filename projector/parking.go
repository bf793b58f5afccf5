package projector

import (
	"context"
	"errors"
	"time"

	"github.com/sluice-cdc/sluice/projector/internal/apply"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/shared/retry"
	"github.com/sluice-cdc/sluice/shared/telemetry"
	"github.com/sluice-cdc/sluice/shared/terminal"
)

var errNoProgress = errors.New("a batch was applied, and no message of it was decided")

// awaitVersions makes poison of changes that have waited for a missing version for VERSION_GAP_WAIT, and reports whether there is one. The
// others are tried again after a pause, or as soon as a version comes.
func (t *tries) awaitVersions(rest *batch) (expired bool) {
	pause, waits := time.Duration(0), false
	for i, r := range rest.results {
		if r.Kind != apply.Gap {
			continue
		}
		wait, over := t.s.gaps.Seen(rest.changes[i].Stream+"\n"+rest.changes[i].Aggregate, rest.changes[i].MessageID)
		if over {
			rest.results[i].Kind = apply.Poison
			expired = true
		} else if !waits || wait < pause {
			pause, waits = wait, true
		}
	}
	if waits && !expired {
		t.s.metrics.gaps.Inc()
		t.deferred.versions = time.Now().Add(pause)
	}
	return expired
}

// logDecision logs what an operator should know of one change. The record of a parking is committed by then.
func (s *service) logDecision(session string, c *envelope.Change, r apply.Result) {
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
			s.log.Warn("event dead-lettered; its message names no aggregate, so none is parked", append(attributes, telemetry.KeyDescription, r.Description)...)
			return
		}
		s.log.Warn("aggregate parked: an event could not be applied; its events wait in the dead-letter queue until it is replayed",
			append(attributes, telemetry.KeyDescription, r.Description, telemetry.KeyToDo, terminal.Paste(c.Aggregate, s.program, "parked show"))...)
		if r.Stack != "" {
			s.log.Error("the projection panicked", telemetry.KeyAggregate, c.Aggregate, telemetry.KeyMessageID, c.MessageID,
				telemetry.KeyDescription, r.Description, telemetry.KeyStack, r.Stack)
		}
	case apply.Parked:
		s.log.Debug("event dead-lettered behind the one that parked its aggregate", attributes...)
	case apply.Gap:
		s.log.Debug("event waits for an earlier version", append(attributes, telemetry.KeyDescription, r.Description)...)
	case apply.Pending, apply.Applied, apply.Duplicate:
	}
}

// countParked keeps the number of parked aggregates up to date until ctx ends. The index makes counting cheap; without it the whole
// collection is read, and therefore less often.
func (s *service) countParked(ctx context.Context) {
	indexed := s.indexParked(ctx)
	every := 15 * time.Second
	if !indexed {
		every = 10 * time.Minute
	}
	for {
		attempt, cancel := context.WithTimeout(ctx, every)
		n, err := s.applier.Count(attempt)
		cancel()
		switch {
		case err == nil:
			s.parked.Store(n)
			s.metrics.parked.Set(float64(n))
		case ctx.Err() == nil:
			s.log.Debug("parked aggregates not counted", telemetry.KeyError, err)
		}
		select {
		case <-ctx.Done():
			return
		case <-s.newlyParked:
		case <-time.After(every):
		}
	}
}

// indexParked creates the index, and retries while the database is away. Without the right to create it, everything works, but
// slower.
func (s *service) indexParked(ctx context.Context) bool {
	var backoff retry.Backoff
	for {
		err := s.applier.Index(ctx)
		switch {
		case err == nil:
			return true
		case apply.Refused(err):
			s.log.Warn("the index of parked aggregates cannot be created; they are found by reading the whole collection, which is slow. "+
				"Grant createIndex on it, or create the index yourself", telemetry.KeyError, err)
			return false
		case backoff.Wait(ctx) != nil:
			return false
		}
	}
}
