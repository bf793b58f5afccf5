package publish

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/shared/retry"
	"github.com/sluice-cdc/sluice/shared/telemetry"
)

// lane sends one batch after the other. While one of its batches is not acknowledged, nothing else of the batch's sessions
// is sent by anybody.
type lane struct {
	publisher  *Publisher
	dispatcher *dispatcher
}

// load is a batch with what is in it.
type load struct {
	batch    Batch
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
		if err != nil {
			return err
		}
		span := l.publisher.spans.sending(ctx, load.items)
		latency, err := l.send(ctx, load)
		l.publisher.spans.sent(span, err)
		if err != nil {
			return err
		}
		l.publisher.acknowledged(load.items)
		l.dispatcher.end(load.sessions, latency)
	}
}

// fill takes as much of what waits as one batch may hold.
func (l *lane) fill(ctx context.Context, first *backlog) (load, error) {
	batch, err := l.newBatch(ctx)
	if err != nil {
		return load{}, err
	}
	out := load{batch: batch}
	room := l.publisher.config.BatchMessages
	for session := first; session != nil; session = l.dispatcher.more() {
		waiting := l.dispatcher.waiting(session, room-len(out.items))
		n, err := l.add(ctx, batch, waiting)
		if err != nil && !errors.Is(err, errFull) && n+len(out.items) == 0 { // behind others its turn comes again, when they are sent
			if ctx.Err() == nil {
				l.publisher.metrics.refused()
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

// add puts the items into the batch in order, and says how many fit.
func (l *lane) add(ctx context.Context, batch Batch, items []*item) (n int, err error) {
	for n, i := range items {
		if err := l.encode(ctx, i); err != nil {
			return n, err
		}
		err := batch.Add(i.message)
		if errors.Is(err, ErrOversized) && l.publisher.config.Claims != nil && i.change.Claim == nil {
			if err = l.checkIn(ctx, i); err == nil {
				err = batch.Add(i.message)
			}
		}
		switch {
		case errors.Is(err, ErrOversized):
			batch.AddAlone(i.message) // the item keeps its change, to be named where the entity has no room for it either
			return n + 1, errFull
		case err != nil:
			return n, err
		}
		i.message, i.change = nil, envelope.Change{} // the batch holds all that is needed, once
	}
	return len(items), nil
}

// newBatch begins a batch, which needs the link, which may need a connection: tried for as long as this process leads.
func (l *lane) newBatch(ctx context.Context) (Batch, error) {
	var batch Batch
	err := l.persist(ctx, 0, func(ctx context.Context) (err error) {
		batch, err = l.publisher.broker.NewBatch(ctx)
		return err
	})
	return batch, err
}

// send sends the batch until it is acknowledged, and says how long the attempt took that was. Of the other outcomes, not
// sent and unknown have one answer: the same batch again, before anything later of its sessions. [ErrRefused] and
// [ErrOversized] have none.
func (l *lane) send(ctx context.Context, load load) (latency time.Duration, err error) {
	begun := time.Now()
	err = l.persist(ctx, len(load.items), func(ctx context.Context) error {
		attempt := time.Now()
		err := l.publisher.broker.Send(ctx, load.batch)
		latency = time.Since(attempt)
		if errors.Is(err, errUnknown) || errors.Is(err, errCutShort) {
			l.publisher.metrics.doubted()
		}
		return err
	})
	if errors.Is(err, ErrOversized) {
		return 0, oversized(load.items[0])
	}
	if errors.Is(err, ErrRefused) {
		return 0, fmt.Errorf("send %d events of session %q and %d others: %w",
			len(load.items), load.sessions[0].session, len(load.sessions)-1, err)
	}
	if err != nil {
		return 0, err
	}
	l.publisher.metrics.acknowledged(len(load.items), time.Since(begun))
	return latency, nil
}

// persist tries until it succeeds, ctx ends, or the broker refuses for good. No attempt begins or lasts beyond the fence.
func (l *lane) persist(ctx context.Context, size int, attempt func(context.Context) error) error {
	p := l.publisher
	// A busy broker asks for seconds; what else goes wrong may be over in a moment.
	failing := retry.Backoff{Initial: 50 * time.Millisecond, Max: 2 * time.Second}
	busy := retry.Backoff{Initial: 2 * time.Second, Max: 8 * time.Second}
	for attempts := 1; ; attempts++ {
		err := p.fenced(ctx, attempt)
		if err == nil {
			if attempts > 1 && p.failing.Add(-1) == 0 { // the last of the lanes that failed
				p.sending.Report(nil)
			}
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if errors.Is(err, ErrRefused) || errors.Is(err, ErrOversized) {
			p.metrics.refused()
			return err
		}
		p.metrics.retried()
		if attempts == 1 {
			p.failing.Add(1)
		}
		p.sending.Report(err, telemetry.KeyBatch, size)
		backoff := &failing
		if errors.Is(err, errBusy) {
			backoff = &busy
			p.throttled()
		}
		if err := backoff.Wait(ctx); err != nil {
			return err
		}
	}
}
