// Package projector brings changes from Service Bus sessions into read models: accept a session,
// receive a batch, decode, plan, apply, complete.
//
// Guaranteed:
//   - G1, nothing is lost: a message is completed only after its effect is committed with write
//     concern majority, or was before.
//   - G2, order: per aggregate, effects are committed in commit order. A session's messages are
//     applied in the order in which the broker sends them, batch after batch.
//   - G3, once: every effect happens once, however often its message is delivered and however many
//     processes apply it at the same time. A guard in the read model decides, never the session's
//     lock, which may be lost unnoticed.
//   - G5, a poison event stops its aggregate and nothing else: the aggregate is parked, which is
//     recorded in its guard, and then the event and all later ones of the aggregate are
//     dead-lettered, in order. While it is parked none of its events takes effect. A message that
//     cannot be read and names no aggregate parks none. An insert that leaves versions out waits
//     for VERSION_GAP_WAIT and then is poison. An unavailable database, for however long, parks
//     nothing, dead-letters nothing and raises no delivery count.
//   - G6, no silent skip: a message that can never be applied is dead-lettered with a reason and a
//     description.
//
// Not guaranteed: order between aggregates; that a message is delivered once.
package projector

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-cdc/sluice/projector/internal/apply"
	"github.com/sluice-cdc/sluice/projector/internal/remote"
	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/console"
	"github.com/sluice-cdc/sluice/shared/health"
	"github.com/sluice-cdc/sluice/shared/outage"
	"github.com/sluice-cdc/sluice/shared/retry"
	"github.com/sluice-cdc/sluice/shared/settings"
	"github.com/sluice-cdc/sluice/shared/telemetry"
)

// Options are the inputs that are not settings.
type Options struct {
	// Logger takes the log; nil discards it.
	Logger *slog.Logger
	// Program is what people type to run the program: messages name commands by it. Empty means
	// projector.
	Program string
	// Instance names this replica in /status; empty takes [telemetry.Instance].
	Instance string
	// Projections holds what PROJECTION can name; nil takes [projection.Builtin].
	Projections *projection.Registry
	// Credential signs in if a namespace is configured; nil uses [azure.Credential].
	Credential azcore.TokenCredential
	// ServiceBus, Blob and Mongo adjust the clients: other transports, for example. Each may be
	// nil.
	ServiceBus *azservicebus.ClientOptions
	Blob       *azblob.ClientOptions
	Mongo      func(*options.ClientOptions)
	// Administration is how the administration of Service Bus is asked; nil: as the SDK does.
	Administration *azcore.ClientOptions
	// ProjectionDial connects to the projection's program (PROJECTION_URL); nil dials.
	ProjectionDial func(ctx context.Context, network, address string) (net.Conn, error)
	// Tracer makes spans, which continue those of the producer; nil makes none.
	Tracer trace.Tracer

	remote *remote.Client // of the projection's program, whose declaration was read
}

func (o Options) program() string { return cmp.Or(o.Program, "projector") }

// Run projects until ctx ends, then stops within ShutdownTimeout: it accepts and receives no more,
// finishes the batches in hand, or leaves them to be delivered again, and releases every session,
// which raises no delivery count. It returns nil after such a stop, a [settings.Problems] when the
// configuration is wrong, and else why it could not go on. Whatever it started has ended when it
// returns.
func Run(ctx context.Context, cfg Config, opts Options) error {
	if cfg.ProjectionURL != "" {
		program, err := awaitProgram(ctx, cfg, opts)
		if program == nil {
			return err
		}
		opts.remote = program
	}
	s, err := open(ctx, cfg, opts)
	if err != nil {
		return err
	}
	defer s.close(ctx)
	s.log.Info("projector starting", telemetry.KeyProjection, s.projection, telemetry.KeyEntity, cfg.entity().String())

	// Three ends, one after the other: of ctx, when receiving ends; of work, when batches in hand
	// are left; of serving, when all is done.
	group, receiving := errgroup.WithContext(ctx)
	work, stopWork := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stopWork(nil)
	serving, stopServing := context.WithCancel(context.WithoutCancel(ctx))
	defer stopServing()
	defer context.AfterFunc(receiving, func() {
		s.stopping.Store(true)
		timer := time.AfterFunc(cfg.ShutdownTimeout*3/4, func() { stopWork(errShutdown) })
		context.AfterFunc(serving, func() { timer.Stop() })
	})()

	if cfg.HTTPAddr != "" && cfg.HTTPUI {
		s.ui = console.New(s.home())
		group.Go(func() error { s.ui.Run(serving); return nil })
	}
	if cfg.HTTPAddr != "" {
		group.Go(func() error { return health.Serve(serving, cfg.HTTPAddr, s.httpProbes(), s.log) })
	}
	group.Go(func() error {
		telemetry.ReportStatus(serving, s.log, cfg.StatusInterval, func() any { return s.Status() })
		return nil
	})
	group.Go(func() error { s.connect(receiving); return nil })
	group.Go(func() error {
		defer stopServing()
		built, err := s.awaitBuild(receiving)
		if !built || s.suspects != nil && !s.beginWatch(receiving) {
			return err
		}
		group.Go(func() error { return s.pipeline.Run(receiving) })
		group.Go(func() error { return s.watchDrop(receiving) })
		if s.suspects != nil {
			var watch sync.WaitGroup
			watch.Go(func() { s.suspects.Run(receiving) })
			defer s.endWatch(receiving)
			defer watch.Wait()
		}
		s.pool.Run(receiving, work, s.pipeline.Handle)
		return nil
	})
	err = group.Wait()
	if err == nil && errors.Is(context.Cause(work), errShutdown) {
		err = fmt.Errorf("%w (SHUTDOWN_TIMEOUT is %s)", errShutdown, cfg.ShutdownTimeout)
	}
	end := s.Status()
	s.log.Info("projector stopped", "applied", end.Applied, "duplicates", end.Duplicates,
		"dead_lettered", end.DeadLettered, "redelivered", end.Redelivered)
	return err
}

var errShutdown = errors.New("stop projector: batches in hand were not finished in time; they will be delivered again")

// choose validates the configuration, including what only the registry knows. With a program, the
// projection is the program's.
func choose(cfg Config, registry *projection.Registry, program *remote.Client) (projection.Projection, error) {
	name, version, wrong := projection.ParseVersion(cfg.Projection)
	if program != nil {
		registry = &projection.Registry{}
		if err := registry.Register(program.Projection()); err != nil {
			return nil, settings.Problems{fmt.Errorf("PROJECTION_URL: %w", err)}
		}
	}
	chosen, known := registry.Lookup(name)
	if cfg.Projection == "" {
		chosen, known = registry.Default()
	}
	problems := cfg.problems()
	switch {
	case wrong != nil: // which is one of them
	case !known && cfg.Projection == "":
		problems = append(problems, fmt.Errorf("PROJECTION: is required, because the program has several; set one of %s", strings.Join(registry.Names(), ", ")))
	case !known:
		problems = append(problems, fmt.Errorf("PROJECTION: is not one of %s", strings.Join(registry.Names(), ", ")))
	}
	if len(problems) > 0 {
		return nil, problems
	}
	if mirror, ok := chosen.(projection.Mirror); ok && mirror.Plain() {
		own, err := cfg.mirror()
		if err != nil {
			return nil, err
		}
		chosen = own
	}
	chosen, err := projection.Version(chosen, version)
	if err != nil {
		return nil, settings.Problems{fmt.Errorf("PROJECTION: %w", err)}
	}
	if err := cmp.Or(cfg.checkVersion(chosen), cfg.checkSource(chosen)); err != nil {
		return nil, settings.Problems{err}
	}
	return chosen, nil
}

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
