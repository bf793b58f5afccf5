// Package publish carries events to Service Bus, many at a time, and knows at every moment up to where all of them have
// arrived.
//
// Guaranteed:
//   - The events of a session arrive in the order in which they were published, whatever is sent again on the way: a
//     session always maps to the same lane, a lane has one batch outstanding, and a batch whose outcome is unknown is
//     sent again, unchanged, before anything later of its lane.
//   - The watermark never passes an event that has not been acknowledged.
//   - What is held in memory is bounded by bytes and by count; beyond that [Publisher.Publish] blocks.
//
// Not guaranteed: that an event arrives once. A batch that is sent again may have arrived the first time; its messages
// have the same ids.
package publish

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/sluice-cdc/sluice/producer/internal/checkpoint"
	"github.com/sluice-cdc/sluice/shared/envelope"
)

// Scope is what one batch may hold.
type Scope string

// The scopes.
const (
	// ScopeSession puts one session into a batch: partitioned entities refuse anything else.
	ScopeSession Scope = "session"
	// ScopeMixed fills batches with as many sessions as fit; only for entities that are not partitioned.
	ScopeMixed Scope = "mixed"
)

// Config bounds the work.
type Config struct {
	Lanes         int
	Scope         Scope
	Format        envelope.Format
	BatchMessages int   // messages in a batch, at most
	MaxEvents     int64 // events between Publish and acknowledgement, at most
	MaxBytes      int64 // bytes of their bodies, at most; one event may be larger
	// StallAfter without a single acknowledgement while events wait, Run gives up with [ErrStalled]; 0 means
	// never.
	StallAfter time.Duration
}

// ErrStalled is a publisher that makes no progress although events wait. Another process may fare better.
var ErrStalled = errors.New("no event was acknowledged for too long although some wait")

// Fence tells until when this process may send: *leader.Term.
type Fence interface{ Deadline() time.Time }

// Publisher publishes one stream during one term of leadership.
type Publisher struct {
	config    Config
	broker    Broker
	fence     Fence
	watermark *Watermark
	metrics   *Metrics
	log       *slog.Logger

	lanes    []*lane
	seed     maphash.Seed
	events   *semaphore.Weighted
	bytes    *semaphore.Weighted
	inFlight atomic.Int64
	progress atomic.Int64 // acknowledgements, to see whether there are any
	troubled atomic.Int64 // lanes whose last attempt failed
}

// New prepares a publisher; nothing is sent before Run.
func New(config Config, broker Broker, fence Fence, start checkpoint.Progress, metrics *Metrics, log *slog.Logger) *Publisher {
	p := &Publisher{
		config: config, broker: broker, fence: fence, watermark: NewWatermark(start), metrics: metrics, log: log,
		seed:   maphash.MakeSeed(),
		events: semaphore.NewWeighted(config.MaxEvents),
		bytes:  semaphore.NewWeighted(config.MaxBytes),
	}
	for i := range config.Lanes {
		p.lanes = append(p.lanes, newLane(i, p))
	}
	return p
}

// Progress is how far everything has been acknowledged.
func (p *Publisher) Progress() checkpoint.Progress { return p.watermark.Progress() }

// InFlight is the number of events taken and not yet acknowledged.
func (p *Publisher) InFlight() int64 { return p.inFlight.Load() }

// Publish takes the next event of the stream; after is the progress it makes. It blocks while the bounds are reached,
// until ctx ends (its cause is the error). It must not be called concurrently, nor after Close.
func (p *Publisher) Publish(ctx context.Context, c envelope.Change, after checkpoint.Progress) error {
	size := min(int64(len(c.Body)), p.config.MaxBytes)
	if err := p.events.Acquire(ctx, 1); err != nil {
		return context.Cause(ctx)
	}
	if err := p.bytes.Acquire(ctx, size); err != nil {
		p.events.Release(1)
		return context.Cause(ctx)
	}
	p.inFlight.Add(1)
	i := item{change: c, size: size, session: envelope.SessionID(c.Aggregate), sequence: p.watermark.Add(after)}
	p.lanes[maphash.String(p.seed, i.session)%uint64(len(p.lanes))].push(i)
	return nil
}

// Pass takes progress that needs nothing to be sent.
func (p *Publisher) Pass(after checkpoint.Progress) { p.watermark.Pass(after) }

// Close says that no more events come: Run returns once what is in flight has been acknowledged.
func (p *Publisher) Close() {
	for _, l := range p.lanes {
		l.close()
	}
}

// Run sends until it is closed and everything has been acknowledged (then it returns nil), until ctx ends (its cause is
// the error), until it makes no progress ([ErrStalled]), or until an event can never be sent ([ErrOversized], or one
// that cannot be encoded).
func (p *Publisher) Run(ctx context.Context) error {
	watched, done := context.WithCancel(ctx)
	defer done()
	g, ctx := errgroup.WithContext(ctx)
	var lanes sync.WaitGroup
	lanes.Add(len(p.lanes))
	for _, l := range p.lanes {
		g.Go(func() error {
			defer lanes.Done()
			return l.run(ctx)
		})
	}
	if p.config.StallAfter > 0 {
		g.Go(func() error { return p.watch(watched) })
	}
	lanes.Wait()
	done()
	return g.Wait()
}

// watch returns [ErrStalled] when events wait and none is acknowledged for StallAfter, and nil when ctx ends.
func (p *Publisher) watch(ctx context.Context) error {
	const looks = 4 // in StallAfter: how exactly it is kept
	ticker := time.NewTicker(p.config.StallAfter / looks)
	defer ticker.Stop()
	last, still := p.progress.Load(), 0
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if now := p.progress.Load(); now != last || p.inFlight.Load() == 0 {
			last, still = now, 0
			continue
		}
		if still++; still > looks { // the first look may come right after the event
			return ErrStalled
		}
	}
}

// acknowledged gives back what a batch held.
func (p *Publisher) acknowledged(items []item) {
	sequences := make([]uint64, len(items))
	var bytes int64
	for n, i := range items {
		sequences[n] = i.sequence
		bytes += i.size
	}
	p.watermark.Ack(sequences...)
	p.bytes.Release(bytes)
	p.events.Release(int64(len(items)))
	p.inFlight.Add(-int64(len(items)))
	p.progress.Add(1)
}

// encode makes the message of an item, once.
func (p *Publisher) encode(i *item) error {
	if i.message != nil {
		return nil
	}
	m, err := envelope.Encode(i.change, p.config.Format)
	if err != nil {
		return err
	}
	i.message = m
	return nil
}

// oversized explains an event that cannot be sent.
func oversized(i item) error {
	return fmt.Errorf("%w: %s of aggregate %q at %s: its message of %d bytes does not fit into a batch; "+
		"make the event smaller, or use an entity that takes larger messages (Premium)",
		ErrOversized, i.change.Operation, i.change.Aggregate, i.change.Position, len(i.message.Body))
}

var errNoFence = errors.New("no time left to send in")
