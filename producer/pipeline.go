package producer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-cdc/sluice/producer/internal/changes"
	"github.com/sluice-cdc/sluice/producer/internal/checkpoint"
	"github.com/sluice-cdc/sluice/producer/internal/leader"
	"github.com/sluice-cdc/sluice/producer/internal/oplog"
	"github.com/sluice-cdc/sluice/producer/internal/publish"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/shared/retry"
)

// takePart takes part in the election until ctx ends, once MongoDB has answered: no checkpoint is made, and nobody's lease is broken,
// by a replica that could not read. Beside it, once, it checks what no leader could publish by: a standby tells it
// before the leader of another version, which may not have checked, has gone.
func (p *producer) takePart(ctx context.Context) error {
	if !p.reachMongo(ctx) {
		return nil
	}
	p.election.Reads(cluster(ctx, p.clients.collection.Database().Client()))
	g, ctx := errgroup.WithContext(ctx)
	ctx, done := context.WithCancel(ctx)
	g.Go(func() error {
		defer done()
		return p.election.Run(ctx, p.lead)
	})
	g.Go(func() error { return p.config.reading(0).AwaitImages(ctx, p.clients.collection) })
	return g.Wait()
}

// lead is the data's way, for one term of leadership:
//
//	change stream → envelope → lane → batch → Service Bus → watermark → checkpoint
func (p *producer) lead(ctx context.Context, term *leader.Term) error {
	publisher := publish.New(p.config.publishing(p.clients, p.tracer), p.clients.broker, term, term.Start, p.metrics, p.log)
	reading := p.config.reading(term.Epoch)
	reading.Metrics, reading.Patience, reading.Mapping.Types = p.reads, &p.patience, p.types
	reading.Mapping.NumbersByType = term.Reading.Numbers == ""
	reader := changes.New(p.clients.collection, reading, p.log)
	sink := &outlet{term: term, publisher: publisher, sessions: p.config.SessionKey}
	sink.begun.Store(len(term.Start.ResumeToken) > 0)

	term.Track(publisher.Progress)
	var headroom oplog.Sampler
	p.current.Store(&activity{publisher, reader, sink, &headroom})
	defer p.current.Store(nil)

	g, ctx := errgroup.WithContext(ctx)
	readCtx, stopReading := context.WithCancel(ctx)
	g.Go(func() error {
		defer stopReading()
		select {
		case <-term.Stopping():
		case <-readCtx.Done():
		}
		return nil
	})
	g.Go(func() error {
		headroom.Run(readCtx, p.clients.collection.Database().Client())
		return nil
	})
	published := make(chan struct{})
	g.Go(func() error {
		defer stopReading()
		err := reader.Run(readCtx, term.Start, sink)
		publisher.Close()
		// What was read before an error is published before the error ends the term. Otherwise a change that stops the stream
		// would keep those before it from ever being published, and whoever takes the checkpoint past it would lose them.
		<-published
		return stepDown(err)
	})
	g.Go(func() error {
		defer close(published)
		return stepDown(publisher.Run(ctx))
	})
	err := g.Wait()
	if errors.Is(err, leader.ErrStepDown) { // the election goes on, and what another error means is told by who runs it
		p.keepFailure(ctx, err, true)
	}
	return err
}

// stepDown asks for another leader where another replica may do better.
func stepDown(err error) error {
	if errors.Is(err, publish.ErrStalled) || errors.Is(err, changes.ErrSilent) || errors.Is(err, changes.ErrFailing) {
		return fmt.Errorf("%w: %w", leader.ErrStepDown, err)
	}
	return err
}

// outlet is what the reader reads into: the publisher, with this term's epoch and its session on every change.
type outlet struct {
	term      *leader.Term
	publisher *publish.Publisher
	sessions  envelope.SessionKey
	begun     atomic.Bool // the checkpoint holds a token
}

var _ changes.Sink = (*outlet)(nil)

// Change publishes one change, or waits until there is room for it.
func (o *outlet) Change(ctx context.Context, c envelope.Change, after checkpoint.Progress) error {
	c.Epoch, c.Generation, c.Session = o.term.Epoch, o.term.Generation, o.sessions.Session(c.Aggregate)
	return o.publisher.Publish(ctx, c, after)
}

// Idle moves the watermark.
func (o *outlet) Idle(ctx context.Context, after checkpoint.Progress) error {
	if !o.begun.Load() {
		return o.Begin(ctx, after)
	}
	o.publisher.Pass(after)
	return nil
}

// Begin moves the watermark to the beginning of a stream and writes it at once: were the leader to die before that, its successor would
// begin at a later "now". What is in flight before it is acknowledged first.
func (o *outlet) Begin(ctx context.Context, after checkpoint.Progress) error {
	o.publisher.Pass(after)
	backoff := retry.Backoff{Max: time.Second}
	reached := func() bool { return bytes.Equal(o.publisher.Progress().ResumeToken, after.ResumeToken) }
	for !reached() || o.term.Checkpoint(ctx) != nil { // the heartbeat logs why; the fence ends ctx when it lasts
		if err := backoff.Wait(ctx); err != nil {
			return fmt.Errorf("write the checkpoint before anything is published: %w", err)
		}
	}
	o.begun.Store(true)
	return nil
}
