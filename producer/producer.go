// Package producer publishes the changes of a MongoDB collection to Azure Service Bus, in order and
// without loss.
//
// Guaranteed (the names are those of the README):
//   - G1: the checkpoint covers only what Service Bus has acknowledged, without a gap. A producer
//     that resumes from it loses nothing.
//   - G2: the changes of an aggregate arrive in commit order, in one session.
//   - G3: a change has the same MessageId no matter which replica publishes it, or how often.
//   - G4: one replica leads. A replica that wrongly believes that it leads stops on its own;
//     whatever it still sends carries an older epoch and an older position.
//   - G6: a change that cannot be published stops the stream with an error that gives the reason.
//     Nothing is skipped silently.
//
// Not guaranteed: that a change is sent once (a new leader resends what its predecessor sent after
// the last checkpoint, and the broker's duplicate detection has a limited window); order between
// aggregates.
package producer

import (
	"cmp"
	"context"
	"errors"
	"log/slog"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-cdc/sluice/producer/store"
	"github.com/sluice-cdc/sluice/shared/console"
	"github.com/sluice-cdc/sluice/shared/health"
	"github.com/sluice-cdc/sluice/shared/telemetry"
)

// Options are what a program passes in addition to its configuration. The zero value is right in
// production.
type Options struct {
	Logger *slog.Logger // nil discards
	// Instance names this replica; empty takes the platform's name for it.
	Instance string
	// Credential signs in if no connection string is configured; nil takes the workload's identity.
	Credential azcore.TokenCredential
	// ServiceBus, Blob and Mongo are the clients' own options, for other transports.
	ServiceBus *azservicebus.ClientOptions
	Blob       *azblob.ClientOptions
	Mongo      func(*options.ClientOptions)
	// Store opens the checkpoint store that CHECKPOINT_STORE names, if that is neither blob nor
	// mongodb; a store that is an io.Closer is closed at the end. It sends nothing, so its error is
	// one of the settings. Nil: there is no other store.
	Store func(name string) (store.Store, error)
	// Administration is used by the command doctor, which reads the entity's properties.
	Administration *azcore.ClientOptions
	// Tracer makes spans, from reading an event to its acknowledgement; nil makes none.
	Tracer trace.Tracer

	// reportLease receives the id of each stream's lease before it is requested, and "" once this
	// process holds none any more. Several goroutines call it at once. It may be nil.
	reportLease func(stream, lease string)
}

// Run joins the election of the stream's leader and publishes the stream while this replica leads.
// It returns nil after ctx has ended and everything in flight has been handed over. An error means
// that this replica cannot continue.
//
// Others are further streams of the same process. Each stream has its own leader, so the replicas
// share the work. Settings of the whole process are taken from cfg. With several streams, a stream
// that fails is restarted after a delay, and its failure is not returned.
func Run(ctx context.Context, cfg Config, opts Options, others ...Config) error {
	return runStreams(ctx, append([]Config{cfg}, others...), opts)
}

// runStreams is like [Run] with the configurations in one slice.
func runStreams(ctx context.Context, cfgs []Config, opts Options) error {
	log := cmp.Or(opts.Logger, slog.New(slog.DiscardHandler))
	shared, err := openClients(ctx, cfgs, opts)
	if err != nil {
		return err
	}
	defer shared.close(ctx)
	registry, metricsHandler := telemetry.Registry()
	p := &process{instance: cmp.Or(opts.Instance, telemetry.Instance()), reportLease: opts.reportLease}
	for i, cfg := range cfgs {
		p.addStream(cfg, shared.streams[i], registry, opts.Tracer, log)
	}

	// The health server outlives the work: a producer that drains its last sends is still alive.
	serving, stopServing := context.WithCancel(context.WithoutCancel(ctx))
	defer stopServing()
	g, running := errgroup.WithContext(ctx)
	if addr := cfgs[0].HTTPAddr; addr != "" {
		ready := func() error {
			if ctx.Err() != nil {
				return errors.New("stopping")
			}
			return p.ready()
		}
		probes := health.Probes{Live: p.live, Ready: ready, Status: p.status, Metrics: metricsHandler}
		if cfgs[0].HTTPUI {
			ui := console.New(p.home())
			probes.More = ui.Patterns()
			g.Go(func() error { ui.Run(serving); return nil })
		}
		g.Go(func() error { return health.Serve(serving, addr, probes, log) })
	}
	for _, s := range p.streams { // one record per stream: alerts read the status of a single stream
		g.Go(func() error {
			telemetry.ReportStatus(serving, s.log, cfgs[0].StatusInterval, func() any { return s.status() })
			return nil
		})
		g.Go(func() error {
			s.reachServiceBus(running)
			return nil
		})
	}
	g.Go(func() error {
		defer stopServing()
		return p.run(running)
	})
	return g.Wait()
}
