package producer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-cdc/sluice/producer/internal/changes"
	"github.com/sluice-cdc/sluice/producer/internal/checkpoint"
	"github.com/sluice-cdc/sluice/producer/internal/leader"
	"github.com/sluice-cdc/sluice/producer/internal/oplog"
	"github.com/sluice-cdc/sluice/producer/internal/publish"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/shared/outage"
	"github.com/sluice-cdc/sluice/shared/retry"
	"github.com/sluice-cdc/sluice/shared/telemetry"
)

// replica is one replica of one stream. Its fields are set before it runs and do not change.
type replica struct {
	cfg            Config
	instance       string
	clients        *clients
	election       *leader.Election
	publishMetrics *publish.Metrics
	readMetrics    *changes.Metrics
	resumeTimeout  changes.ResumeTimeout
	types          *changes.TypeWatcher
	tracer         trace.Tracer // may be nil
	log            *slog.Logger
	// checkpoint holds the last failure; only the election reads and writes the record.
	checkpoint   *checkpoint.Checkpoint
	dependencies dependencies
	active       atomic.Pointer[activeTerm] // nil while standing by
	failure      atomic.Pointer[error]      // why the stream is stopped; nil while it runs
}

// activeTerm is what runs during a term of leadership.
type activeTerm struct {
	publisher *publish.Publisher
	reader    *changes.Reader
	sink      *sink
	oplog     *oplog.Sampler
}

// run joins the election once MongoDB has answered, until ctx ends. So a replica that cannot read
// never creates a checkpoint or breaks a lease. In parallel it checks once that the collection
// keeps the images that the settings need: a standby reports a bad setting before it has to lead.
func (p *replica) run(ctx context.Context) error {
	if !p.reachMongo(ctx) {
		return nil
	}
	p.election.SetCluster(clusterIdentity(ctx, p.clients.collection.Database().Client()))
	g, ctx := errgroup.WithContext(ctx)
	ctx, done := context.WithCancel(ctx)
	g.Go(func() error {
		defer done()
		return p.election.Run(ctx, p.lead)
	})
	g.Go(func() error { return p.cfg.readerConfig(0).AwaitImages(ctx, p.clients.collection) })
	return g.Wait()
}

// lead runs the whole data flow for one term of leadership:
//
//	change stream → envelope → lane → batch → Service Bus → watermark → checkpoint
func (p *replica) lead(ctx context.Context, term *leader.Term) error {
	publisher := publish.New(p.cfg.publisherConfig(p.clients, p.tracer), p.clients.broker, term, term.Start, p.publishMetrics, p.log)
	readerConfig := p.cfg.readerConfig(term.Epoch)
	readerConfig.Metrics, readerConfig.ResumeTimeout, readerConfig.Mapping.Types = p.readMetrics, &p.resumeTimeout, p.types
	requests := newRequests(p.checkpoint, p.instance, p.log)
	readerConfig.Requests = requests
	readerConfig.Mapping.NumbersByType = term.Fingerprint.Numbers == ""
	reader := changes.New(p.clients.collection, readerConfig, p.log)
	sink := &sink{term: term, publisher: publisher, sessionKey: p.cfg.SessionKey}
	sink.started.Store(len(term.Start.ResumeToken) > 0)

	term.Track(publisher.Progress)
	var headroom oplog.Sampler
	p.active.Store(&activeTerm{publisher, reader, sink, &headroom})
	defer p.active.Store(nil)

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
	if b := term.Start.Backfill; b != nil && b.Chunk != nil {
		requests.exchange(ctx) // an operator may permit what this chunk cannot do without
	}
	g.Go(func() error {
		p.followPacks(readCtx, publisher.PermitPacks)
		return nil
	})
	g.Go(func() error {
		requests.run(readCtx, p.cfg.HeartbeatInterval)
		return nil
	})
	read, published := make(chan struct{}), make(chan struct{})
	var stopped error // the reader's, once read is closed
	g.Go(func() error {
		defer stopReading()
		stopped = reader.Run(readCtx, term.Start, sink)
		close(read)
		publisher.Close()
		// Changes read before an error are published before the error ends the term. Otherwise a
		// change that stops the stream would block the changes before it forever, and an operator
		// who moves the checkpoint past it would lose them.
		<-published
		return stepDown(stopped)
	})
	g.Go(func() error {
		defer close(published)
		err := publisher.Run(ctx)
		if !errors.Is(err, publish.ErrStalled) {
			return err
		}
		select {
		case <-read:
			if errors.Is(stopped, changes.ErrReplaced) {
				// Every replica will meet it, and its remedy moves no checkpoint: the changes
				// that wait are not lost by it.
				return fmt.Errorf("%w. The changes before it wait, too: %w", stopped, err)
			}
		default:
		}
		return stepDown(err)
	})
	err := g.Wait()
	if errors.Is(err, leader.ErrStepDown) { // the election continues; any other error is recorded by the caller
		p.recordFailure(ctx, err, true)
	}
	return err
}

// stepDown makes the replica give up the leadership for errors that another replica may not have.
func stepDown(err error) error {
	if errors.Is(err, publish.ErrStalled) || errors.Is(err, changes.ErrSilent) || errors.Is(err, changes.ErrFailing) {
		return fmt.Errorf("%w: %w", leader.ErrStepDown, err)
	}
	return err
}

// sink receives the changes from the reader. It adds this term's epoch and the session to each
// change and passes it to the publisher.
type sink struct {
	term       *leader.Term
	publisher  *publish.Publisher
	sessionKey envelope.SessionKey
	started    atomic.Bool // the checkpoint holds a token
}

var _ changes.Sink = (*sink)(nil)

// Change publishes one change. It blocks while the limits on events in flight are reached.
func (s *sink) Change(ctx context.Context, c envelope.Change, after checkpoint.Progress) error {
	c.Epoch, c.Generation, c.Session = s.term.Epoch, s.term.Generation, s.sessionKey.Session(c.Aggregate)
	return s.publisher.Publish(ctx, c, after)
}

// Idle advances the watermark without an event.
func (s *sink) Idle(ctx context.Context, after checkpoint.Progress) error {
	if !s.started.Load() {
		return s.Begin(ctx, after)
	}
	s.publisher.Pass(after)
	return nil
}

// Begin advances the watermark and writes the checkpoint at once: to the beginning of a stream,
// whose successor would otherwise begin at a later "now", or to the chunk of a snapshot that is
// published next. Everything in flight is acknowledged first.
func (s *sink) Begin(ctx context.Context, after checkpoint.Progress) error {
	s.publisher.Pass(after)
	if err := s.publisher.Drain(ctx); err != nil {
		return fmt.Errorf("wait for what was published before the checkpoint: %w", err)
	}
	backoff := retry.Backoff{Max: time.Second}
	for s.term.Checkpoint(ctx) != nil { // the heartbeat logs the error; the fence ends ctx if it persists
		if err := backoff.Wait(ctx); err != nil {
			return fmt.Errorf("write the checkpoint before anything is published: %w", err)
		}
	}
	s.started.Store(true)
	return nil
}

// packsEvery is how often a leader with PACK=auto reads whether readers know packs.
const packsEvery = 10 * time.Second

// followPacks lets the publisher send packs while an operator has confirmed that every reader knows
// them, until ctx ends. While the confirmation cannot be read, it stays as it was last read.
func (p *replica) followPacks(ctx context.Context, permit func(bool)) {
	if p.cfg.Pack != "auto" {
		return
	}
	unreadable := outage.New(p.log, "the confirmation that readers know packs")
	for known, on := false, false; ; {
		attempt, cancel := context.WithTimeout(ctx, packsEvery)
		packs, _, err := p.checkpoint.Packs(attempt)
		cancel()
		if ctx.Err() == nil {
			unreadable.Report(err)
		}
		if err == nil && (!known || packs.On != on) {
			if known, on = true, packs.On; on {
				p.log.Info("events of a session that wait are sent in one message")
			} else {
				p.log.Warn("PACK=auto, and it is not confirmed that readers know packs: each event is sent in a message of its own",
					telemetry.KeyToDo, "deploy a version that knows packs to all readers, then run: producer packs on --readers-know")
			}
			permit(on)
		}
		if retry.Sleep(ctx, packsEvery) != nil {
			return
		}
	}
}
