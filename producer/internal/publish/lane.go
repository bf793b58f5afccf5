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

// lane sends one batch after another. Until a batch is acknowledged, no lane sends anything else of its sessions.
type lane struct {
	publisher  *Publisher
	dispatcher *dispatcher
}

// load is a batch with what is in it.
type load struct {
	batch    broker.Batch
	items    []*item
	sessions []*backlog // leased
}

func (l *lane) run(ctx context.Context) error {
	for {
		first, err := l.dispatcher.begin(ctx)
		if err != nil || first == nil {
			return err
		}
		load, err := l.fill(ctx, first)
		if l.publisher.stopsBefore(err) {
			l.dispatcher.drop(first)
			continue
		}
		if err != nil {
			return err
		}
		span := l.publisher.spans.sending(ctx, load.items)
		latency, err := l.send(ctx, load)
		l.publisher.spans.sent(span, err)
		switch {
		case err == nil:
			l.publisher.acknowledged(load)
			l.dispatcher.end(load.sessions, latency)
		case errors.Is(err, errSuspect), errors.Is(err, broker.ErrRefused):
			l.dispatcher.setApart()
			switch err := l.separate(ctx, load, err); {
			case l.publisher.stopsBefore(err):
				l.dispatcher.release(load.sessions...)
			case err != nil:
				return err
			}
		case l.publisher.stopsBefore(err):
			l.dispatcher.drop(load.sessions...)
		default:
			return err
		}
	}
}

// fill packs as many of the waiting items as one batch may hold.
func (l *lane) fill(ctx context.Context, first *backlog) (load, error) {
	batch, err := l.newBatch(ctx)
	if err != nil {
		return load{}, err
	}
	out := load{batch: batch}
	room := int(l.publisher.batchMessages.Load())
	for session := first; session != nil; session = l.dispatcher.more() {
		waiting := l.dispatcher.waiting(session, room-len(out.items))
		n, err := l.pack(ctx, batch, waiting)
		if err != nil && !errors.Is(err, broker.ErrFull) && n+len(out.items) == 0 { // with items before it, those are sent first
			if ctx.Err() == nil {
				l.publisher.metrics.refused()
				err = &doomed{waiting[0].sequence, err}
			}
			return load{}, err
		}
		l.dispatcher.taken(session, n)
		if n > 0 {
			out.items = append(out.items, waiting[:n]...)
			out.sessions = append(out.sessions, session)
		}
		if err != nil || l.publisher.config.Scope == ScopeSession || len(out.items) == room {
			break
		}
	}
	return out, nil
}

// pack puts items into the batch in order, and says how many fit.
func (l *lane) pack(ctx context.Context, batch broker.Batch, items []*item) (n int, err error) {
	for n, i := range items {
		if l.hopeless(i, batch.Largest()) {
			return n, oversized(i)
		}
		if err := l.encode(ctx, i); err != nil {
			return n, err
		}
		err := batch.Add(i.message)
		if errors.Is(err, broker.ErrOversized) && l.publisher.config.Claims != nil && i.change.Claim == nil {
			if err = l.keepBody(ctx, i); err == nil {
				err = batch.Add(i.message)
			}
		}
		switch {
		case errors.Is(err, broker.ErrOversized):
			batch.AddAlone(i.message) // the item keeps its change, to be named if it is too large for the entity as well
			return n + 1, broker.ErrFull
		case err != nil:
			return n, err
		}
		i.message, i.change.Body = nil, nil // the batch holds them; the rest names the event if it is refused
	}
	return len(items), nil
}

// newBatch begins a batch. That needs a link, and perhaps a new connection, so it is retried for as long as this process leads.
func (l *lane) newBatch(ctx context.Context) (broker.Batch, error) {
	var batch broker.Batch
	err := l.retry(ctx, 0, func(ctx context.Context) (err error) {
		batch, err = l.publisher.broker.NewBatch(ctx)
		return err
	})
	return batch, err
}

// send sends the batch until it is acknowledged; latency is that of the attempt that was. A batch that was not sent, and one whose
// outcome is unknown, are sent again as they are, before anything later of their sessions. After [broker.ErrRefused], [broker.ErrOversized] and
// errSuspect there is nothing to retry as it is.
func (l *lane) send(ctx context.Context, load load) (latency time.Duration, err error) {
	var held suspicion
	begun := time.Now()
	err = l.retry(ctx, len(load.items), func(ctx context.Context) error {
		attempt := time.Now()
		err := l.attempt(ctx, load, l.publisher.broker.Send)
		latency = time.Since(attempt)
		if errors.Is(err, broker.ErrRefused) {
			return err
		}
		if held.add(err, l.publisher.taken.Load(), time.Now()); held.apart(l.publisher.taken.Load()) {
			return fmt.Errorf("%w: %w", errSuspect, err)
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	l.publisher.metrics.acknowledged(len(load.items), time.Since(begun))
	return latency, nil
}

// attempt sends a load once, one way or the other.
func (l *lane) attempt(ctx context.Context, load load, send func(context.Context, broker.Batch) error) error {
	err := send(ctx, load.batch)
	switch {
	case errors.Is(err, broker.ErrUnknown), errors.Is(err, broker.ErrCutShort):
		l.publisher.metrics.doubted()
	case errors.Is(err, broker.ErrOversized):
		l.publisher.metrics.refused()
		return &doomed{load.items[0].sequence, oversized(load.items[0])}
	}
	return err
}

// retry makes attempts until one succeeds, ctx ends, or another attempt would not help ([broker.ErrRefused], [broker.ErrOversized], errSuspect). No
// attempt begins or lasts past the fence.
func (l *lane) retry(ctx context.Context, size int, attempt func(context.Context) error) error {
	return l.repeat(ctx, size, func(ctx context.Context) error { return l.publisher.fenced(ctx, attempt) })
}

// repeat is retry for attempts that keep to the fence themselves.
func (l *lane) repeat(ctx context.Context, size int, attempt func(context.Context) error) error {
	p := l.publisher
	// A busy broker needs seconds; any other failure may be over in a moment.
	failing := retry.Backoff{Initial: 50 * time.Millisecond, Max: 2 * time.Second}
	busy := retry.Backoff{Initial: 2 * time.Second, Max: 8 * time.Second}
	for attempts := 1; ; attempts++ {
		err := attempt(ctx)
		if err == nil {
			if attempts > 1 && p.failing.Add(-1) == 0 { // the last of the lanes that failed
				p.sending.Report(nil)
			}
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if errors.Is(err, broker.ErrRefused) || errors.Is(err, broker.ErrOversized) || errors.Is(err, errSuspect) {
			if attempts > 1 && p.failing.Add(-1) == 0 {
				p.sending.Report(nil) // what is left is about this batch
			}
			return err
		}
		p.metrics.retried()
		if attempts == 1 {
			p.failing.Add(1)
		}
		p.sending.Report(err, telemetry.KeyBatch, size)
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
