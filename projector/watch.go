package projector

import (
	"context"

	"github.com/sluice-cdc/sluice/projector/internal/apply"
	"github.com/sluice-cdc/sluice/shared/outage"
	"github.com/sluice-cdc/sluice/shared/retry"
	"github.com/sluice-cdc/sluice/shared/telemetry"
)

// beginWatch registers the process, before it is given an event that may end it. It reports false
// if ctx ends first.
func (s *service) beginWatch(ctx context.Context) bool {
	reading := outage.New(s.log, "read model")
	backoff := retry.Backoff{}
	for {
		attempt, cancel := context.WithTimeout(ctx, reachTimeout)
		err := s.suspects.Begin(attempt)
		cancel()
		switch {
		case err == nil:
			reading.Report(nil)
			return true
		case ctx.Err() != nil:
			return false
		case apply.Refused(err):
			s.log.Warn("an event whose projection ends the process cannot be found, because the record of processes cannot be written",
				telemetry.KeyToDo, "grant readWrite on "+apply.WatchCollection(s.chosen), telemetry.KeyError, err)
			s.suspects.Disable()
			return true
		}
		reading.Report(err)
		if backoff.Wait(ctx) != nil {
			return false
		}
	}
}

// endWatch records that the process stops.
func (s *service) endWatch(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.ShutdownTimeout/8)
	defer cancel()
	if err := s.suspects.End(ctx); err != nil {
		s.log.Debug("stop not recorded; the next projector records what it has in hand for some time", telemetry.KeyError, err)
	}
}
