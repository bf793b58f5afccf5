package pipeline

import (
	"context"
	"time"

	"github.com/sluice-cdc/sluice/projector/internal/apply"
	"github.com/sluice-cdc/sluice/shared/retry"
	"github.com/sluice-cdc/sluice/shared/telemetry"
)

// countParked keeps the number of parked aggregates up to date until ctx ends. The index makes
// counting cheap; without it the whole collection is read, and therefore less often.
func (p *Pipeline) countParked(ctx context.Context) {
	indexed := p.indexParked(ctx)
	every := 15 * time.Second
	if !indexed {
		every = 10 * time.Minute
	}
	for {
		p.metrics.projectionsHanging.Set(float64(p.opts.Applier.Hanging()))
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

// indexParked creates the index, and retries while the database is away. Without the right to
// create it, everything works, but slower.
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
