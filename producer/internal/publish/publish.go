// Package publish sends events to Service Bus over concurrent lanes, and tracks up to which event
// all have been acknowledged.
//
// Guaranteed:
//   - The events of a session arrive in the order in which they were published, no matter what is
//     sent again. A lane has one batch outstanding, a session is in one lane at a time, and a batch
//     whose outcome is unknown is sent again, unchanged or in parts, before anything later of its
//     sessions.
//   - The watermark never passes an event that has not been acknowledged.
//   - Memory is bounded by bytes and by count, even while one event stays unacknowledged and all
//     others are acknowledged. At the limit [Publisher.Publish] blocks.
//
// Not guaranteed: that an event arrives once. A batch that is sent again may have arrived the first
// time; its messages have the same ids.
//
// The number of lanes adapts to the capacity of the connection to the broker: see congestionWindow.
package publish

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/sluice-cdc/sluice/producer/internal/broker"
	"github.com/sluice-cdc/sluice/producer/internal/checkpoint"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/shared/outage"
)

// Config holds the settings and limits of a publisher.
type Config struct {
	Lanes         int // batches outstanding at once, initially
	MaxLanes      int // the maximum, if the connection to the broker has the capacity
	Scope         Scope
	Format        envelope.Format
	BatchMessages int // maximum number of messages in a batch
	// PackEvents is the maximum number of events in a message; below 2 each has its own. PackBytes
	// is the maximum size of the body of such a message.
	PackEvents, PackBytes int // see [Publisher.PermitPacks]
	// MaxEvents is how many events may be between Publish and acknowledgement. While one event
	// stays unacknowledged, the others may go ahead of it by four times as many, which must be
	// remembered.
	MaxEvents int64
	MaxBytes  int64 // maximum size of their bodies; one event may be larger
	// Claims stores the bodies of events that are too large for a message. If it is nil, such an
	// event is [broker.ErrOversized].
	Claims Claims
	// Refusals stores messages that Service Bus permanently refuses, and the stream continues
	// without them. If it is nil, such a message is [broker.ErrRefused].
	Refusals Refusals
	// RefusedAfter is how long Service Bus must object to a message, while it accepts others of the
	// same session, before the message counts as permanently refused. A condition that concerns the
	// message itself counts at once.
	RefusedAfter time.Duration
	// StallAfter is how long Run continues without an acknowledgement while events wait, before it
	// returns [ErrStalled]; 0 means forever.
	StallAfter time.Duration
	// Tracer makes a span for each event, from Publish to its acknowledgement, and for each send;
	// nil makes none. Entity is the destination's name in the spans.
	Tracer trace.Tracer
	Entity string
}

// ErrStalled reports a publisher that makes no progress although events wait. Another process may
// do better.
var ErrStalled = errors.New("no event was acknowledged for too long although events wait")

// Fence returns until when this process may send. *leader.Term implements it.
type Fence interface{ Deadline() time.Time }

// Publisher publishes one stream during one term of leadership.
type Publisher struct {
	config    Config
	broker    broker.Broker
	fence     Fence
	watermark *Watermark
	metrics   *Metrics
	spans     *spans

	sessions         *sessionLimit
	dispatcher       *dispatcher
	events           *semaphore.Weighted
	bytes            *semaphore.Weighted
	remembered       *semaphore.Weighted // events from the oldest unacknowledged one to the newest
	inFlight         atomic.Int64
	progress         atomic.Int64 // batches acknowledged and messages parked, to detect a stall
	acknowledgements atomic.Int64 // batches acknowledged, including probes
	probes           *probes
	parkLimiter      parkLimiter
	throttles        atomic.Int64 // responses of a busy broker
	sendTimeout      sendTimeout
	failingLanes     atomic.Int64 // lanes whose last attempt failed
	sendOutage       *outage.Outage
	claimOutage      *outage.Outage // storing the bodies of large events with [Claims]
	parkOutage       *outage.Outage // storing refused messages with [Refusals]
	log              *slog.Logger
	batchMessages    sizeLimit // of messages in a batch
	packEvents       sizeLimit // of events in a message
}

// New returns a publisher. It sends nothing before Run.
func New(config Config, to broker.Broker, fence Fence, start checkpoint.Progress, metrics *Metrics, log *slog.Logger) *Publisher {
	sessions := newSessionLimit(config.Scope)
	p := &Publisher{
		config: config, sessions: sessions, broker: to, fence: fence, watermark: NewWatermark(start), metrics: metrics,
		spans:       newSpans(config.Tracer, config.Entity),
		sendOutage:  outage.New(log, "sending to Service Bus"),
		claimOutage: outage.New(log, "claim checks"),
		parkOutage:  outage.New(log, "refused messages"),
		log:         log,
		dispatcher:  newDispatcher(config, sessions),
		probes:      newProbes(config.MaxBytes / 4),
		events:      semaphore.NewWeighted(config.MaxEvents),
		bytes:       semaphore.NewWeighted(config.MaxBytes),
		remembered:  semaphore.NewWeighted(maxLead * config.MaxEvents),
		parkLimiter: parkLimiter{sessions: map[string]*parkedSession{}},
	}
	p.batchMessages.set(config.BatchMessages)
	return p
}

// PermitPacks sets whether messages may hold several events. Before the first call they do not.
func (p *Publisher) PermitPacks(permitted bool) {
	most := 0
	if permitted {
		most = p.config.PackEvents
	}
	p.packEvents.set(most)
}

// Progress returns how far everything has been acknowledged.
func (p *Publisher) Progress() checkpoint.Progress { return p.watermark.Progress() }

// InFlight returns the number of events published and not yet acknowledged.
func (p *Publisher) InFlight() int64 { return p.inFlight.Load() }

// Lanes returns how many batches may currently be outstanding.
func (p *Publisher) Lanes() int { return p.dispatcher.limit() }

// Publish queues the next event of the stream; after is the progress that it makes. It blocks while
// the limits are reached, until ctx ends (its cause is the error). It must not be called
// concurrently, nor after Close.
func (p *Publisher) Publish(ctx context.Context, c envelope.Change, after checkpoint.Progress) error {
	size := min(int64(len(c.Body)), p.config.MaxBytes)
	span := p.spans.published(ctx, &c)
	if err := p.events.Acquire(ctx, 1); err != nil {
		return context.Cause(ctx)
	}
	if err := p.bytes.Acquire(ctx, size); err != nil {
		p.events.Release(1)
		return context.Cause(ctx)
	}
	if err := p.remembered.Acquire(ctx, 1); err != nil {
		p.events.Release(1)
		p.bytes.Release(size)
		return context.Cause(ctx)
	}
	p.inFlight.Add(1)
	p.dispatcher.push(&item{
		change: c, size: size, span: span, session: c.SessionID(), sequence: p.watermark.Add(after),
	})
	return nil
}

// Pass records progress that needs nothing to be sent.
func (p *Publisher) Pass(after checkpoint.Progress) { p.watermark.Pass(after) }

// Drain waits until everything published and passed is acknowledged, or until ctx ends (its cause
// is the error). It must not be called concurrently with Publish.
func (p *Publisher) Drain(ctx context.Context) error { return p.watermark.Wait(ctx) }

// Close records that no more events follow: Run returns once everything in flight has been
// acknowledged.
func (p *Publisher) Close() { p.dispatcher.close() }

// Run sends until it is closed and everything has been acknowledged (then it returns nil), until
// ctx ends (its cause is the error), until it makes no progress ([ErrStalled]), or until an event
// can never be sent ([broker.ErrOversized], [broker.ErrRefused], or an encoding error). It is
// called once.
func (p *Publisher) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	watched, done := context.WithCancel(ctx)
	g.Go(func() error {
		defer done()
		return p.send(ctx)
	})
	if p.config.StallAfter > 0 {
		g.Go(func() error { return p.detectStall(watched) })
	}
	err := g.Wait()
	p.spans.abandon(err)
	return err
}

// send runs the lanes. It starts one, which starts the next when it has something to send, and so
// on. When a lane fails, the others first finish their current batches: if these were cancelled,
// they would be cancelled after every restart, and the checkpoint would never advance. The lanes
// send everything before an event that can never be sent.
func (p *Publisher) send(ctx context.Context) error {
	var lanes errgroup.Group
	defer context.AfterFunc(ctx, p.dispatcher.interrupt)()
	p.dispatcher.spawn = func() {
		l := &lane{publisher: p, dispatcher: p.dispatcher}
		lanes.Go(func() error {
			err := l.run(ctx)
			if err != nil {
				p.dispatcher.halt()
			}
			return err
		})
	}
	p.dispatcher.spawn()
	if err := lanes.Wait(); err != nil {
		return err
	}
	return p.dispatcher.haltError()
}

// throttledStallFactor is how many times StallAfter the publisher waits for a broker that reports
// that it is busy. Another leader would most likely have to wait as well; but the wait is limited,
// because another leader would use another connection.
const throttledStallFactor = 30

// detectStall returns [ErrStalled] if events wait and none is acknowledged for StallAfter, or for
// throttledStallFactor times as long while the broker reports that it is busy. It returns nil when
// ctx ends.
func (p *Publisher) detectStall(ctx context.Context) error {
	const checks = 4 // checks per StallAfter
	ticker := time.NewTicker(p.config.StallAfter / checks)
	defer ticker.Stop()
	acknowledged, throttled := p.progress.Load(), p.throttles.Load()
	still, silent := 0, 0 // consecutive checks without an acknowledgement, and without any response
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if now := p.progress.Load(); now != acknowledged || p.inFlight.Load() == 0 {
			acknowledged, still, silent = now, 0, 0
			continue
		}
		still, silent = still+1, silent+1
		if now := p.throttles.Load(); now != throttled {
			throttled, silent = now, 0
		}
		if silent > checks || still > throttledStallFactor*checks { // the first check may come right after the event
			if err := p.sendOutage.Err(); err != nil {
				return fmt.Errorf("%w: %w", ErrStalled, err)
			}
			return ErrStalled
		}
	}
}

// acknowledged releases the resources of an acknowledged batch.
func (p *Publisher) acknowledged(b loadedBatch) {
	p.spans.acknowledged(b.items)
	p.rememberProbes(b)
	p.parkLimiter.acknowledged(b.sessions)
	p.release(b.items)
	p.progress.Add(1)
	p.acknowledgements.Add(1)
}

// release returns the capacity of finished events and advances the watermark.
func (p *Publisher) release(items []*item) {
	sequences := make([]uint64, len(items))
	var bytes int64
	for n, i := range items {
		sequences[n] = i.sequence
		bytes += i.size
	}
	p.remembered.Release(p.watermark.Ack(sequences...))
	p.bytes.Release(bytes)
	p.events.Release(int64(len(items)))
	p.inFlight.Add(-int64(len(items)))
}

// throttled records that the broker is busy.
func (p *Publisher) throttled() {
	p.metrics.busy.Inc()
	p.dispatcher.throttled()
	p.throttles.Add(1)
}

// oversized returns the error for an event whose message is too large.
func oversized(i *item) error {
	size := len(i.change.Body)
	if i.message != nil {
		size = len(i.message.Body)
	}
	return fmt.Errorf("%w: %s: its message of %d bytes is larger than the entity accepts; "+
		"set ON_OVERSIZE=claimcheck, make the event smaller, or use an entity that accepts larger messages (Premium)",
		broker.ErrOversized, describe(i), size)
}

// maxLead is how many times MaxEvents the newest event may be ahead of the oldest unacknowledged
// one.
const maxLead = 4

var errFencePassed = errors.New("wait for a heartbeat: the fence has passed")
