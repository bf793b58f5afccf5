// Package producer publishes the changes of a MongoDB collection to Azure Service Bus, in order and with nothing lost.
//
// Promised (the names are those of the README):
//   - G1: the checkpoint covers only what Service Bus has acknowledged, without a gap: a producer that resumes from it loses
//     nothing.
//   - G2: the changes of an aggregate arrive in commit order, in one session.
//   - G3: a change has the same MessageId whoever publishes it and however often.
//   - G4: one replica leads. One that only believes that it leads stops by itself; what it still sends carries an older epoch and
//     an older position.
//   - G6: what cannot be published stops the stream with an error that says why; nothing is skipped silently.
//
// Not promised: that a change is sent once (a new leader sends again what its predecessor sent after the last checkpoint, and
// the broker's duplicate detection forgets after a while); order between aggregates.
package producer

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/prometheus/client_golang/prometheus"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-cdc/sluice/producer/internal/changes"
	"github.com/sluice-cdc/sluice/producer/internal/checkpoint"
	"github.com/sluice-cdc/sluice/producer/internal/leader"
	"github.com/sluice-cdc/sluice/producer/internal/oplog"
	"github.com/sluice-cdc/sluice/producer/internal/publish"
	"github.com/sluice-cdc/sluice/shared/health"
	"github.com/sluice-cdc/sluice/shared/telemetry"
)

// Options is what a program hands in besides its configuration. The zero value is right in production.
type Options struct {
	Logger *slog.Logger // nil discards
	// Instance names this replica; empty takes the platform's name for it.
	Instance string
	// Credential signs in where no connection string is configured; nil takes the workload's identity.
	Credential azcore.TokenCredential
	// The clients' own options, for other transports.
	ServiceBus *azservicebus.ClientOptions
	Blob       *azblob.ClientOptions
	Mongo      func(*options.ClientOptions)
	// Administration is for the doctor, which asks Service Bus how the entity is made.
	Administration *azcore.ClientOptions
	// Held is told of each stream's lease that this process asks for, and of "" when it holds none any more; nil is told nothing. It is
	// called by several goroutines at once.
	Held func(stream, lease string)
	// Tracer makes spans, from reading an event to its acknowledgement; nil makes none.
	Tracer trace.Tracer
}

// Run takes part in the election of the stream's leader and, while it leads, publishes the stream. It returns nil after
// ctx has ended and everything in flight has been handed over; an error means that this replica cannot go on.
func Run(ctx context.Context, config Config, o Options) error {
	return RunStreams(ctx, []Config{config}, o)
}

// RunStreams is [Run] for one or more streams in one process. Each stream has a leader of its own, so the replicas share the
// work. Settings of the whole process are taken from the first configuration. Where there are several streams, one that fails is
// restarted after a while, and its failure is not returned.
func RunStreams(ctx context.Context, configs []Config, o Options) error {
	log := o.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	instance := o.Instance
	if instance == "" {
		instance = telemetry.Instance()
	}
	shared, err := connect(ctx, configs, o)
	if err != nil {
		return err
	}
	defer shared.close(ctx)
	registry, metricsHandler := telemetry.Registry()
	p := &process{instance: instance, held: o.Held}
	for i, config := range configs {
		p.addStream(config, shared.streams[i], registry, o.Tracer, log)
	}

	// The health server outlives the work: a producer that is draining its last sends is still alive.
	serving, stopServing := context.WithCancel(context.WithoutCancel(ctx))
	defer stopServing()
	g, running := errgroup.WithContext(ctx)
	if addr := configs[0].HTTPAddr; addr != "" {
		ready := func() error {
			if ctx.Err() != nil {
				return errors.New("stopping")
			}
			return p.ready()
		}
		probes := health.Probes{Live: p.live, Ready: ready, Status: p.status, Metrics: metricsHandler}
		g.Go(func() error { return health.Serve(serving, addr, probes, log) })
	}
	for _, s := range p.streams { // one record per stream: alerts read the status of a single stream
		g.Go(func() error {
			telemetry.ReportStatus(serving, s.log, configs[0].StatusInterval, func() any { return s.status() })
			return nil
		})
	}
	for _, s := range p.streams {
		g.Go(func() error {
			s.keepBus(running)
			return nil
		})
	}
	g.Go(func() error {
		defer stopServing()
		return p.run(running)
	})
	return g.Wait()
}

// addStream makes the replica of one stream.
func (p *process) addStream(config Config, clients *clients, registry prometheus.Registerer, tracer trace.Tracer, log *slog.Logger) {
	log = log.With(telemetry.KeyStream, config.Stream)
	registry = prometheus.WrapRegistererWith(prometheus.Labels{telemetry.LabelStream: config.Stream}, registry)
	blob := checkpoint.NewBlob(clients.blob.ServiceClient().NewContainerClient(config.Container), config.Stream)
	s := &producer{
		config: config, instance: p.instance, clients: clients,
		metrics: publish.NewMetrics(registry), reads: changes.NewMetrics(registry), tracer: tracer, log: log, checkpoint: blob,
	}
	election := config.election(p.instance)
	election.Metrics = leader.NewMetrics(registry)
	if p.held != nil {
		election.Held = func(lease string) { p.held(config.Stream, lease) }
	}
	election.Yield = func() time.Duration { return p.yield(s) }
	s.election = leader.New(election, blob, blob, log)
	s.types = changes.NewTypes(s.reads, log)
	s.observe(registry)
	p.streams = append(p.streams, s)
}

// activity is what runs during a term.
type activity struct {
	publisher *publish.Publisher
	reader    *changes.Reader
	sink      *outlet
	oplog     *oplog.Sampler
}

// producer is one replica of one stream. Its fields do not change after Run has made it.
type producer struct {
	config   Config
	instance string
	clients  *clients
	election *leader.Election
	metrics  *publish.Metrics
	reads    *changes.Metrics
	patience changes.Patience
	types    *changes.Types
	tracer   trace.Tracer // may be nil
	log      *slog.Logger
	// checkpoint is for the last failure; the election alone reads and writes the record.
	checkpoint *checkpoint.Blob
	reached    reached
	current    atomic.Pointer[activity] // nil while standing by
	failure    atomic.Pointer[error]    // why the stream is stopped; nil while it runs
}
