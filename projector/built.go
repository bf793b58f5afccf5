package projector

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-cdc/sluice/projector/internal/build"
	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/outage"
	"github.com/sluice-cdc/sluice/shared/retry"
	"github.com/sluice-cdc/sluice/shared/settings"
	"github.com/sluice-cdc/sluice/shared/telemetry"
)

const (
	// lookForBuild is how often a projector checks whether its build has ended.
	lookForBuild = 5 * time.Second
	// remindOfBuild is how often a projector logs that it waits for its build.
	remindOfBuild = 5 * time.Minute
)

// awaitBuild waits until the read model's build has ended, if it has one or needs one, and learns
// through which position each aggregate was built. It reports false if ctx ends first. Errors: a
// [settings.Problems] if a collection has a collation.
func (s *service) awaitBuild(ctx context.Context) (bool, error) {
	var reminded time.Time
	reading := outage.New(s.log, "read model")
	for {
		attempt, cancel := context.WithTimeout(ctx, reachTimeout)
		done, err := s.readBuild(attempt)
		cancel()
		switch refusal, refused := errors.AsType[*build.CollationError](err); {
		case refused:
			return false, settings.Problems{fmt.Errorf("READ_MODEL_DATABASE: %w", refusal)}
		case isRefused(err):
			return false, settings.Problems{fmt.Errorf("PROJECTION_URL: %w", err)}
		case errors.Is(err, build.ErrDropped):
			return false, settings.Problems{fmt.Errorf("PROJECTION: %w", err)}
		case done:
			s.unbuilt.Store(false)
			return true, nil
		case ctx.Err() != nil:
			return false, nil
		case err != nil:
			reading.Report(err)
		default:
			s.unbuilt.Store(true)
			reading.Report(nil)
			if time.Since(reminded) >= remindOfBuild {
				reminded = time.Now()
				s.log.Warn("no event is applied before the read model is built", telemetry.KeyProjection, s.chosen.Name(),
					telemetry.KeyToDo, fmt.Sprintf("run %s build with the same settings", s.program))
			}
		}
		if retry.Sleep(ctx, lookForBuild) != nil {
			return false, nil
		}
	}
}

// watchDrop returns when ctx ends, or with an error when the version is dropped: its collections go
// soon, and must not be created by another write.
func (s *service) watchDrop(ctx context.Context) error {
	for retry.Sleep(ctx, lookForBuild) == nil {
		attempt, cancel := context.WithTimeout(ctx, reachTimeout)
		state, err := build.Read(attempt, s.readModel(), s.chosen)
		cancel()
		if err == nil && state != nil && state.State == build.Dropped { // other errors are reported by the writes
			return settings.Problems{fmt.Errorf("PROJECTION: %w", build.ErrDropped)}
		}
	}
	return nil
}

// readBuild reports whether the read model may be written to.
func (s *service) readBuild(ctx context.Context) (done bool, err error) {
	readModel := s.readModel()
	if err := s.storeDeclaration(ctx); err != nil {
		return false, err
	}
	// A user who may not list collections is reported by reachMongo.
	if err := build.CheckCollations(ctx, readModel, s.applier.Collections()); err != nil && !errors.Is(err, build.ErrRights) {
		return false, err
	}
	state, err := build.Read(ctx, readModel, s.chosen)
	switch {
	case err != nil:
		return false, err
	case state == nil:
		done = projection.VersionOf(s.chosen) == 1
		s.metrics.Build(!done, 0)
		return done, nil
	case state.State == build.Dropped:
		return false, build.ErrDropped
	case state.State != build.Done:
		s.metrics.Build(true, state.Events)
		return false, nil
	}
	s.metrics.Build(false, state.Events)
	ranges, err := build.ReadRanges(ctx, readModel, s.chosen, state)
	if err != nil {
		return false, err
	}
	s.ranges.Store(ranges)
	return true, nil
}

// checkVersion checks that a version above 1 has a subscription of its own, which keeps its events
// while it is built.
func (c *Config) checkVersion(chosen projection.Projection) error {
	v := projection.VersionOf(chosen)
	if v == 1 {
		return nil
	}
	name := fmt.Sprintf("%s-v%d", projection.Base(chosen).Name(), v)
	switch {
	case c.Queue != "":
		return fmt.Errorf("SERVICE_BUS_QUEUE: version %d of a projection needs a subscription of its own, named %s: a queue has one reader", v, name)
	case c.Subscription != name:
		return fmt.Errorf("SERVICE_BUS_SUBSCRIPTION: version %d of a projection has a subscription of its own, named %s", v, name)
	}
	return nil
}

// builtThrough implements [apply.Options.Through].
func (s *service) builtThrough(stream, aggregate string) string {
	if ranges := s.ranges.Load(); ranges != nil {
		return ranges.Through(stream, aggregate)
	}
	return ""
}
