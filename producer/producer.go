// Package producer publishes the changes of a MongoDB collection to Azure Service Bus, in order and with nothing lost.
//
// Promised (the names are those of the README):
//   - G1: the checkpoint covers only what Service Bus has acknowledged, without a gap, so that whoever goes on from it
//     loses nothing.
//   - G2: the changes of an aggregate arrive in commit order, in one session.
//   - G3: a change has the same MessageId whoever publishes it and however often.
//   - G4: one replica leads; one that only believes that it does stops by itself, and what it still sends carries an
//     older epoch and an older position.
//   - G6: what cannot be published stops the stream with an error that says why; nothing is passed over silently.
//
// Not promised: that a change is sent once (a new leader repeats what its predecessor sent after the last checkpoint,
// and the broker's duplicate detection forgets); order between aggregates.
package producer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-cdc/sluice/producer/internal/changes"
	"github.com/sluice-cdc/sluice/producer/internal/checkpoint"
	"github.com/sluice-cdc/sluice/producer/internal/leader"
	"github.com/sluice-cdc/sluice/producer/internal/publish"
	"github.com/sluice-cdc/sluice/shared/envelope"
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
}

// Run takes part in the election of the stream's leader and, while it leads, publishes the stream. It returns nil after
// ctx has ended and everything in flight has been handed over; an error means that this replica cannot go on.
func Run(ctx context.Context, config Config, o Options) error {
	log := o.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	clients, err := connect(config, o)
	if err != nil {
		return err
	}
	defer clients.close(ctx)

	instance := o.Instance
	if instance == "" {
		instance = telemetry.Instance()
	}
	registry, metricsHandler := telemetry.Registry()
	blob := checkpoint.NewBlob(clients.blob.ServiceClient().NewContainerClient(config.Container), config.Stream)
	p := &producer{
		config:   config,
		instance: instance,
		clients:  clients,
		election: leader.New(config.election(instance), blob, blob, log),
		metrics:  publish.NewMetrics(registry),
		log:      log,
	}
	p.observe(registry)

	// The health server outlives the work: a producer that drains its last sends is still alive.
	serving, stopServing := context.WithCancel(context.WithoutCancel(ctx))
	defer stopServing()
	g, running := errgroup.WithContext(ctx)
	if config.HTTPAddr != "" {
		probes := health.Probes{Live: p.live, Ready: p.ready, Status: p.status, Metrics: metricsHandler}
		g.Go(func() error { return health.Serve(serving, config.HTTPAddr, probes, log) })
	}
	g.Go(func() error { telemetry.ReportStatus(serving, log, config.StatusInterval, p.status); return nil })
	g.Go(func() error {
		defer stopServing()
		return p.election.Run(running, p.lead)
	})
	return g.Wait()
}

// activity is what runs during a term.
type activity struct {
	publisher *publish.Publisher
	reader    *changes.Reader
	sink      *outlet
}

// producer is one replica. Its fields do not change after Run has made it.
type producer struct {
	config   Config
	instance string
	clients  *clients
	election *leader.Election
	metrics  *publish.Metrics
	log      *slog.Logger
	current  atomic.Pointer[activity] // nil while standing by
}

// lead is the data's way, for one term of leadership:
//
//	change stream → envelope → lane → batch → Service Bus → watermark → checkpoint
func (p *producer) lead(ctx context.Context, term *leader.Term) error {
	publisher := publish.New(p.config.publishing(), p.clients.broker, term, term.Start, p.metrics, p.log)
	reader := changes.New(p.clients.collection, p.config.reading(), p.log)
	sink := &outlet{term: term, publisher: publisher}
	sink.begun.Store(len(term.Start.ResumeToken) > 0)

	term.Track(publisher.Progress)
	p.current.Store(&activity{publisher, reader, sink})
	defer p.current.Store(nil)

	g, ctx := errgroup.WithContext(ctx)
	reading, stopReading := context.WithCancel(ctx)
	g.Go(func() error {
		defer stopReading()
		select {
		case <-term.Stopping():
		case <-reading.Done():
		}
		return nil
	})
	g.Go(func() error {
		defer stopReading()
		defer publisher.Close()
		return reader.Run(reading, term.Start, sink)
	})
	g.Go(func() error {
		err := publisher.Run(ctx)
		if errors.Is(err, publish.ErrStalled) {
			return fmt.Errorf("%w: %w", leader.ErrStepDown, err)
		}
		return err
	})
	return g.Wait()
}

// outlet is what the reader reads into: the publisher, with this term's epoch on every change.
type outlet struct {
	term      *leader.Term
	publisher *publish.Publisher
	begun     atomic.Bool // the checkpoint holds a token
}

var _ changes.Sink = (*outlet)(nil)

// Change publishes one change, or waits until there is room for it.
func (o *outlet) Change(ctx context.Context, c envelope.Change, after checkpoint.Progress) error {
	c.Epoch = o.term.Epoch
	return o.publisher.Publish(ctx, c, after)
}

// Idle moves the watermark. The very first token of a stream is written at once: until it is, a leader that dies makes
// its successor begin at a later "now".
func (o *outlet) Idle(ctx context.Context, after checkpoint.Progress) error {
	o.publisher.Pass(after)
	if o.begun.Load() {
		return nil
	}
	if err := o.term.Checkpoint(ctx); err != nil {
		return fmt.Errorf("write the first checkpoint of the stream: %w", err)
	}
	o.begun.Store(true)
	return nil
}
