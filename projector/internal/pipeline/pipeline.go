// Package pipeline carries the messages of one session after the other into the read model: receive, decode,
// apply, settle. It decides what to do with messages that cannot be applied yet.
//
// The promises are those of package projector; how sessions are accepted is package sessions', how changes
// are written package apply's.
package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-cdc/sluice/projector/internal/alone"
	"github.com/sluice-cdc/sluice/projector/internal/apply"
	"github.com/sluice-cdc/sluice/projector/internal/gaps"
	"github.com/sluice-cdc/sluice/projector/internal/sessions"
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
	Bodies     Bodies          // of messages with a claim check; nil: none is configured

	Entity        azure.Entity                  // received from
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
	failing   *alone.Failing
	gaps      *gaps.Gaps

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
		failing: alone.New(opts.UndecidedAfter), gaps: gaps.New(opts.VersionGapWait), refused: make(chan error, 1), asked: make(chan struct{}),
	}
	p.collections, _ = projection.Collections(opts.Projection)
	return p
}

// Run asks for the entity's MaxDeliveryCount and counts parked aggregates until ctx ends. It returns early,
// with a [settings.Problems], if an event shows that the settings are wrong.
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

// Redeem fetches the body of a change that has a claim check, and retries until that succeeds or ctx ends. The
// error is final (an [*envelope.Error]), or the cause of ctx. done frees the memory; it is never nil.
func (p *Pipeline) Redeem(ctx context.Context, c *envelope.Change) (done func(), err error) {
	return p.claims.redeem(ctx, c)
}

// Handle is the data's way through one session, again and again:
//
//	receive → decode → pace → apply → settle → next
//
// [next] decides what to do with what is not decided. A batch that is only to be completed is settled while the next one is received and
// applied.
func (p *Pipeline) Handle(receiving, applying context.Context, session *sessions.Session) (err error) {
	var completing completion
	defer func() {
		if errors.Is(err, sessions.ErrRelease) && session.Leave(completing.wait) {
			return
		}
		if late := completing.wait(); late != nil && (err == nil || errors.Is(err, sessions.ErrRelease)) {
			err = late
		}
	}()
	d := p.newDeferred(session)
	for {
		called := time.Now()
		messages, err := d.next(receiving, &completing)
		if err != nil {
			return err
		}
		p.metrics.received(messages)
		if err := p.awaitDeliveries(receiving, messages); err != nil {
			return err
		}
		b := p.decode(messages)
		if p.atRisk(messages) { // what might be the last delivery is not waited with before its aggregate is parked
			b.pace = func() error { return p.pace(receiving, session, b, messages) }
		} else if err := p.pace(receiving, session, b, messages); err != nil {
			return err
		}
		if err := p.refuse(receiving, b); err != nil {
			return err
		}
		b.spans = follow(receiving, p.opts.Tracer, p.opts.Entity.String(), called, b)
		spans := b.spans
		err = p.finish(receiving, applying, session, d.join(b), d, &completing)
		spans.abandon()
		if err != nil {
			return err
		}
	}
}

// decode reads the messages. One that cannot be read is poison from the start, and so is one that was delivered so often that the
// broker might dead-letter it by itself: unless it turns out to be applied already. Poison parks its aggregate if the message names one;
// otherwise nobody can tell whose event it was, and it parks none.
func (p *Pipeline) decode(messages []*azservicebus.ReceivedMessage) *batch {
	var b batch
	last := p.lastDelivery()
	for _, m := range messages {
		change, err := envelope.Decode(m)
		switch {
		case err != nil:
			b.addMessage(m, envelope.Partial(m), apply.Undecodable(err))
		case m.DeliveryCount >= last:
			b.addMessage(m, change, apply.UsedUp(m.DeliveryCount, p.MaxDeliveries()))
		default:
			b.addMessage(m, change, apply.Result{})
		}
	}
	return &b
}

// refuse ends the projector if an event shows that its settings are wrong.
func (p *Pipeline) refuse(ctx context.Context, b *batch) error {
	if err := p.refuseOwnSource(ctx, b); err != nil {
		return err
	}
	return p.refuseLookedUp(b)
}

// finish applies and settles a batch until all of its messages are decided, or what is undecided waits, or must be delivered again. What is
// decided is settled while the rest is tried on.
func (p *Pipeline) finish(
	receiving, applying context.Context, session *sessions.Session, b *batch, d *deferred, completing *completion,
) error {
	t := p.newTries(session.ID(), b, d)
	defer func() { b.dropBody() }()
	for {
		failures, away := p.applyBatch(applying, session, b, t)
		if applying.Err() != nil {
			return context.Cause(applying)
		}
		if err := completing.wait(); err != nil {
			return err
		}
		if b.pace != nil {
			if err := b.pace(); err != nil {
				return err
			}
		}
		if err := p.settle(receiving, applying, session, b, completing); err != nil {
			return err
		}
		if away == nil {
			b.dropBody()
		}
		var progress bool
		b, progress = b.rest()
		switch next(t.outcome(b, progress, failures, away)) {
		case finished:
			return nil
		case again:
		case later:
			if t.backoff.Wait(receiving) != nil {
				return fmt.Errorf("stop with a batch in hand: %w", away)
			}
		case fetch:
			i, _ := d.fetchable(b, t.leave)
			if err := d.fetch(receiving, b, i); err != nil {
				return err
			}
		case wait:
			d.b = b
			return nil
		case release:
			return sessions.ErrRelease
		case stuck:
			return errNoProgress
		}
	}
}

// applyBatch makes one attempt to write the batch. failures are changes that failed for a reason of their own; away is why nothing more
// could be done.
func (p *Pipeline) applyBatch(applying context.Context, session *sessions.Session, b *batch, t *tries) (failures []failure, away error) {
	start := time.Now()
	attempt, cancel := context.WithTimeout(applying, p.opts.ApplyTimeout)
	defer cancel()
	span := b.spans.applying(attempt)
	tried := t.some(b)
	failed, away := p.opts.Applier.Apply(attempt, session.ID(), t.next(), b.changes, b.results)
	endSpan(span, away)
	b.spans.decided(b)
	p.metrics.applied(b, time.Since(start), away == nil)
	if committed := p.committed(b); committed || tried && away == nil && len(failed) == 0 && len(t.leave) == 0 {
		p.readModel.Report(nil)
	}
	if away != nil || len(failed) > 0 {
		p.metrics.applyFailed()
		t.apart = true
	}
	for _, f := range failed {
		failures = append(failures, failure{&b.changes[f.Index], f.Err})
	}
	t.made(b, away != nil && attempt.Err() != nil)
	return failures, away
}
