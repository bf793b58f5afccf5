// Package pipeline carries the messages of one session after the other into the read model:
// receive, decode, apply, settle. It decides what to do with messages that cannot be applied yet.
//
// The promises are those of package projector; how sessions are accepted is package sessions', how
// changes are written package apply's.
package pipeline

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-cdc/sluice/projector/internal/apply"
	"github.com/sluice-cdc/sluice/projector/internal/remote"
	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/azure"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/shared/outage"
)

// Options are a pipeline's settings and the clients that it uses.
type Options struct {
	Program    string // what operators type to run the program
	Projection projection.Projection
	Applier    *apply.Applier
	Database   *mongo.Database // of the read model
	Remote     *remote.Client  // of a projection that is a program of its own; nil without one
	Bodies     Bodies          // of messages with a claim check; nil: none is configured

	Entity        azure.Entity                  // received from
	Batch         int                           // the most events that are applied at once
	AnswerBytes   int                           // of a program's answers that a session keeps
	MaxDeliveries int                           // its MaxDeliveryCount; 0: ask for it
	Administer    func() (*admin.Client, error) // opens the client to ask with

	ApplyTimeout, SettleTimeout    time.Duration // of one attempt to write a batch, and to settle a message
	UndecidedAfter, VersionGapWait time.Duration // settings of these names

	Logger  *slog.Logger
	Metrics *Metrics
	Tracer  trace.Tracer // nil: traces nothing
}

// Pipeline handles sessions. It is safe for concurrent use.
type Pipeline struct {
	opts      Options
	metrics   *Metrics
	readModel *outage.Outage
	claims    *redeemer
	decider   *decider

	unreadable unreadable // messages of encodings that this version does not know

	collections  []projection.Collection // of the read model, if the projection names them
	notOwnSource atomic.Bool             // an event has shown that the read model is not its own source
	refused      chan error              // why the projector must end

	askedDeliveries atomic.Int32  // the entity's MaxDeliveryCount; 0: not known
	asked           chan struct{} // closed after the first attempt to ask for it
}

// New returns a pipeline.
func New(opts Options) *Pipeline {
	p := &Pipeline{
		opts: opts, metrics: opts.Metrics, readModel: outage.New(opts.Logger, "read model"), claims: newRedeemer(opts.Bodies, opts.Logger),
		decider: newDecider(opts.UndecidedAfter, opts.VersionGapWait), refused: make(chan error, 1), asked: make(chan struct{}),
	}
	p.collections, _ = projection.Collections(opts.Projection)
	return p
}

// Run asks for the entity's MaxDeliveryCount and counts parked aggregates until ctx ends. It
// returns early, with a [settings.Problems], if an event shows that the settings are wrong.
func (p *Pipeline) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { p.askDeliveries(ctx); return nil })
	group.Go(func() error { p.countParked(ctx); return nil })
	group.Go(func() error {
		select {
		case err := <-p.refused:
			return err
		case <-ctx.Done():
			return nil
		}
	})
	return group.Wait()
}

// Refuse ends the projector with an error. It does not block.
func (p *Pipeline) Refuse(err error) {
	select {
	case p.refused <- err:
	default: // another session was faster
	}
}

// Redeem fetches the body of a change that has a claim check, and retries until that succeeds or
// ctx ends. The error is final (an [*envelope.Error]), or the cause of ctx. done frees the memory;
// it is never nil.
func (p *Pipeline) Redeem(ctx context.Context, c *envelope.Change) (done func(), err error) {
	return p.claims.redeem(ctx, c)
}
