package publish

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-cdc/sluice/producer/internal/broker"
	"github.com/sluice-cdc/sluice/shared/retry"
	"github.com/sluice-cdc/sluice/shared/telemetry"
)

// lane sends one batch after another. Until a batch is acknowledged, no lane sends anything else of
// its sessions.
type lane struct {
	publisher  *Publisher
	dispatcher *dispatcher
}

// loadedBatch is a batch with its items and their sessions.
type loadedBatch struct {
	batch    broker.Batch
	items    []*item
	sessions []*backlog // leased
	events   []int      // how many each message holds
}

func (l *lane) run(ctx context.Context) error {
	for {
		first, err := l.dispatcher.begin(ctx)
		if err != nil || first == nil {
			return err
		}
		if err := l.deliver(ctx, first); err != nil {
			return err
		}
	}
}

// deliver fills a batch, beginning with a session, and sends it until it is acknowledged or the
// lane must end.
func (l *lane) deliver(ctx context.Context, first *backlog) error {
	limit := l.publisher.sessions.begin()
	defer l.publisher.sessions.end(limit)
	b, err := l.fill(ctx, first, limit)
	if l.publisher.haltAt(err) {
		l.dispatcher.abandon(first)
		return nil
	}
	if err != nil {
		return err
	}
	l.dispatcher.filled(b.count())
	span := l.publisher.spans.sending(ctx, b.items)
	latency, err := l.send(ctx, b, l.publisher.broker.Send, (*failureHistory).shouldIsolate)
	l.publisher.spans.sent(span, err)
	switch {
	case err == nil:
		l.publisher.acknowledged(b)
		l.publisher.sessions.accepted(len(b.sessions))
		l.dispatcher.end(b.sessions, b.count(), latency)
	case errors.Is(err, errSuspect), errors.Is(err, broker.ErrRefused):
		l.dispatcher.isolate()
		err := l.isolate(ctx, b, err)
		if !l.publisher.haltAt(err) {
			return err
		}
		l.dispatcher.release(b.sessions...)
	case l.publisher.haltAt(err):
		l.dispatcher.abandon(b.sessions...)
	default:
		return err
	}
	return nil
}

// fill packs as many waiting items as fit into a batch, of at most limit sessions.
func (l *lane) fill(ctx context.Context, first *backlog, limit int) (loadedBatch, error) {
	batch, err := l.newBatch(ctx)
	if err != nil {
		return loadedBatch{}, err
	}
	out := loadedBatch{batch: batch}
	maxMessages, events := l.publisher.batchMessages.get(time.Now()), l.publisher.packEvents.get(time.Now())
	for session := first; session != nil; session = l.dispatcher.leaseNext() {
		waiting := l.dispatcher.peek(session, (maxMessages-out.count())*max(events, 1))
		n, err := l.pack(ctx, &out, waiting, maxMessages, events)
		if err != nil && !errors.Is(err, broker.ErrFull) && len(out.items) == 0 { // items before it are sent first
			if ctx.Err() == nil {
				l.publisher.metrics.refusals.Inc()
				err = &unsendable{waiting[0].sequence, err}
			}
			return loadedBatch{}, err
		}
		l.dispatcher.take(session, n)
		if n > 0 {
			out.sessions = append(out.sessions, session)
		}
		if err != nil || len(out.sessions) == limit || out.count() == maxMessages {
			break
		}
	}
	return out, nil
}

// pack adds items to the batch in order, in at most maxMessages messages of at most so many events,
// and returns how many fit.
func (l *lane) pack(ctx context.Context, out *loadedBatch, items []*item, maxMessages, events int) (n int, err error) {
	batch := out.batch
	for n < len(items) && out.count() < maxMessages {
		i := items[n]
		if events > 1 {
			packed, err := l.addPack(ctx, batch, items[n:min(n+events, len(items))])
			if err != nil {
				return n, err
			}
			if packed > 0 {
				out.added(items[n : n+packed]...)
				n += packed
				continue
			}
		}
		if l.exceedsEntityLimit(i, batch.MaxMessageBytes()) {
			return n, oversized(i)
		}
		if err := l.encode(ctx, i); err != nil {
			return n, err
		}
		err := batch.Add(i.message)
		if errors.Is(err, broker.ErrOversized) && l.publisher.config.Claims != nil && i.change.Claim == nil {
			if err = l.storeBody(ctx, i); err == nil {
				err = batch.Add(i.message)
			}
		}
		switch {
		case errors.Is(err, broker.ErrOversized):
			// the item keeps its change, for the error if the message is too large for the entity
			// as well
			batch.AddUnbatched(i.message)
			out.added(i)
			return n + 1, broker.ErrFull
		case err != nil:
			return n, err
		}
		// the batch holds the message; the rest describes the event if it is refused
		i.message, i.change.Body = nil, nil
		out.added(i)
		n++
	}
	return n, nil
}

// newBatch returns an empty batch. That needs a link, and perhaps a new connection, so it is
// retried while this process leads.
func (l *lane) newBatch(ctx context.Context) (broker.Batch, error) {
	var batch broker.Batch
	err := l.retry(ctx, 0, func(ctx context.Context) (err error) {
		batch, err = l.publisher.broker.NewBatch(ctx)
		return err
	})
	return batch, err
}

// send sends the batch, with attempt, until it is acknowledged, and returns the latency of the
// successful attempt. A batch that was not sent, or whose outcome is unknown, is sent again
// unchanged, before anything later of its sessions. Errors: [broker.ErrRefused],
// [broker.ErrOversized], errSuspect if the failures make the batch suspect, or the cause of ctx.
func (l *lane) send(ctx context.Context, b loadedBatch, attempt func(context.Context, broker.Batch) error,
	suspect func(failures *failureHistory, acknowledged int64) bool,
) (latency time.Duration, err error) {
	var history failureHistory
	begun := time.Now()
	err = l.retry(ctx, len(b.items), func(ctx context.Context) error {
		attempted := time.Now()
		err := l.attempt(ctx, b, attempt)
		latency = time.Since(attempted)
		if err == nil || errors.Is(err, broker.ErrRefused) {
			return err
		}
		acknowledged := l.publisher.acknowledgements.Load()
		if history.record(err, acknowledged, time.Now()); suspect(&history, acknowledged) {
			return fmt.Errorf("%w: %w", errSuspect, err)
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	l.publisher.metrics.acknowledged(len(b.items), time.Since(begun))
	return latency, nil
}

// attempt sends a batch once, by the given function.
func (l *lane) attempt(ctx context.Context, b loadedBatch, send func(context.Context, broker.Batch) error) error {
	err := send(ctx, b.batch)
	switch {
	case errors.Is(err, broker.ErrUnknown), errors.Is(err, broker.ErrTimedOut):
		l.publisher.metrics.unknown.Inc()
	case errors.Is(err, broker.ErrOversized):
		l.publisher.metrics.refusals.Inc()
		return &unsendable{b.items[0].sequence, oversized(b.items[0])}
	}
	return err
}

// retry calls attempt until it succeeds, ctx ends, or another attempt would not help
// ([broker.ErrRefused], [broker.ErrOversized], errSuspect). No attempt starts or lasts past the
// fence.
func (l *lane) retry(ctx context.Context, size int, attempt func(context.Context) error) error {
	return l.retryUnfenced(ctx, size, func(ctx context.Context) error { return l.publisher.withFence(ctx, attempt) })
}

// retryUnfenced is like retry for attempts that observe the fence themselves.
func (l *lane) retryUnfenced(ctx context.Context, size int, attempt func(context.Context) error) error {
	p := l.publisher
	// A busy broker needs seconds; other failures are often over at once.
	failing := retry.Backoff{Initial: 50 * time.Millisecond, Max: 2 * time.Second}
	busy := retry.Backoff{Initial: 2 * time.Second, Max: 8 * time.Second}
	for attempts := 1; ; attempts++ {
		err := attempt(ctx)
		if err != nil && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err == nil || errors.Is(err, broker.ErrRefused) || errors.Is(err, broker.ErrOversized) || errors.Is(err, errSuspect) {
			if attempts > 1 && p.failingLanes.Add(-1) == 0 { // the last failing lane
				p.sendOutage.Report(nil) // any further failure concerns only this batch
			}
			return err
		}
		p.metrics.retries.Inc()
		if attempts == 1 {
			p.failingLanes.Add(1)
		}
		p.sendOutage.Report(err, telemetry.KeyBatch, size)
		backoff := &failing
		if errors.Is(err, broker.ErrBusy) {
			backoff = &busy
			p.throttled()
		}
		if err := backoff.Wait(ctx); err != nil {
			return err
		}
	}
}
