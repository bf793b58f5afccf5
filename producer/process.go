package producer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/sluice-cdc/sluice/producer/internal/changes"
	"github.com/sluice-cdc/sluice/producer/internal/leader"
	"github.com/sluice-cdc/sluice/producer/internal/publish"
	"github.com/sluice-cdc/sluice/shared/retry"
	"github.com/sluice-cdc/sluice/shared/telemetry"
)

// Bounds of the delay between a stream's failure and its restart, similar to a platform's delay
// before it restarts a process.
const (
	minRestartDelay = 10 * time.Second
	maxRestartDelay = 5 * time.Minute
)

// process holds the streams of one process.
type process struct {
	instance    string
	reportLease func(stream, lease string) // may be nil
	streams     []*replica
}

// addStream adds the replica of one stream.
func (p *process) addStream(cfg Config, clients *clients, registry prometheus.Registerer, tracer trace.Tracer, log *slog.Logger) {
	log = log.With(telemetry.KeyStream, cfg.Stream)
	registry = prometheus.WrapRegistererWith(prometheus.Labels{telemetry.LabelStream: cfg.Stream}, registry)
	point := clients.checkpoints.open(cfg.Stream)
	s := &replica{
		cfg: cfg, instance: p.instance, clients: clients,
		publishMetrics: publish.NewMetrics(registry), readMetrics: changes.NewMetrics(registry), tracer: tracer, log: log, checkpoint: point,
	}
	election := cfg.electionConfig(p.instance)
	election.Metrics = leader.NewMetrics(registry)
	if p.reportLease != nil {
		election.ReportLease = func(lease string) { p.reportLease(cfg.Stream, lease) }
	}
	election.Yield = func() time.Duration { return p.yield(s) }
	s.election = leader.New(election, point, point, log)
	s.types = changes.NewTypeWatcher(s.readMetrics, log)
	s.registerMetrics(registry)
	p.streams = append(p.streams, s)
}

// run runs every stream until ctx ends. The error of a single stream ends the process: the platform
// restarts it and shows that it did. With several streams, one that fails must not stop the others,
// neither on this replica nor on the replicas that lead it next. So only the failed stream stops.
// It is reported in the log, in /status and as a metric, and is restarted after a delay.
func (p *process) run(ctx context.Context) error {
	if len(p.streams) == 1 {
		s := p.streams[0]
		err := s.run(ctx)
		if err != nil && ctx.Err() == nil {
			s.recordFailure(ctx, err, false)
		}
		return err
	}
	var running sync.WaitGroup
	errs := make([]error, len(p.streams))
	for i, s := range p.streams {
		running.Go(func() { errs[i] = s.runWithRestarts(ctx) })
	}
	running.Wait()
	return errors.Join(errs...)
}

// runWithRestarts runs the stream and restarts it after each failure. The error is a failure that
// occurred after ctx had ended.
func (p *replica) runWithRestarts(ctx context.Context) error {
	backoff := retry.Backoff{Initial: minRestartDelay, Max: maxRestartDelay}
	// Replicas that start together poll their streams in different orders, and so share them.
	if retry.Sleep(ctx, rand.N(p.cfg.StandbyPoll)) != nil {
		return nil
	}
	for {
		started := time.Now()
		err := p.run(ctx)
		if ctx.Err() != nil {
			if err != nil {
				return fmt.Errorf("stop stream %s: %w", p.cfg.Stream, err)
			}
			return nil
		}
		if time.Since(started) > maxRestartDelay {
			backoff.Reset()
		}
		wait := backoff.Next()
		p.log.Error("the stream has failed and will be restarted; the other streams continue",
			telemetry.KeyError, err, telemetry.KeyWait, wait.Milliseconds())
		p.failure.Store(&err)
		p.recordFailure(ctx, err, false)
		if retry.Sleep(ctx, wait) != nil {
			return nil
		}
		p.failure.Store(nil)
	}
}

// yield returns how long this replica leaves a stream without a leader to the other replicas. It
// grows with the number of other streams that this replica leads, so that the replicas share them.
// No replica gives up a stream for that: balance is not guaranteed.
func (p *process) yield(stream *replica) time.Duration {
	const maxPolls = 3
	leading := 0
	for _, s := range p.streams {
		if s != stream && s.active.Load() != nil {
			leading++
		}
	}
	return time.Duration(min(leading, maxPolls)) * stream.cfg.StandbyPoll
}

// streamsStatus is what /status returns for several streams. For one stream it returns its
// [Status].
type streamsStatus struct {
	Instance string   `json:"instance"`
	Streams  []Status `json:"streams"`
}

func (p *process) status() any {
	if len(p.streams) == 1 {
		return p.streams[0].status()
	}
	all := streamsStatus{Instance: p.instance}
	for _, s := range p.streams {
		all.Streams = append(all.Streams, s.status())
	}
	return all
}

// live returns an error if the work of a lost term does not end. Otherwise the process is alive: a
// replica that cannot reach its services waits for them, and a restart would not bring them back.
func (p *process) live() error {
	var stuck []error
	for _, s := range p.streams {
		stuck = append(stuck, s.checkStuck())
	}
	return errors.Join(stuck...)
}

// ready returns nil once this replica could lead each of its streams, and from then on: a rollout
// waits for that before it stops the old leader, and a new revision with a wrong secret must not
// replace one that works. A single failed stream does not make the replica unready, because that
// would block the rollout that fixes it, and the other streams.
func (p *process) ready() error {
	var missing []error
	failed := 0
	for _, s := range p.streams {
		if s.failure.Load() != nil {
			failed++
			continue
		}
		missing = append(missing, s.missingDependencies())
	}
	if failed == len(p.streams) {
		return errors.New("every stream has failed; see /status")
	}
	return errors.Join(missing...)
}
