package pipeline

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/sluice-cdc/sluice/projector/internal/apply"
	"github.com/sluice-cdc/sluice/projector/projection"
)

// write makes one attempt to write the batch, and settles what is decided. The error is why the
// session cannot be handled any further.
func (h *handler) write(receiving, applying context.Context, b *batch) (attempt, error) {
	if err := h.ask(applying, b); err != nil {
		if applying.Err() != nil {
			err = context.Cause(applying)
			return attempt{}, err
		}
		return attempt{made: true, away: err}, nil
	}
	a := h.apply(applying, b)
	if applying.Err() != nil {
		return a, context.Cause(applying)
	}
	if err := h.session.Settled(); err != nil {
		return a, err
	}
	return a, h.settle(receiving, applying, b)
}

// apply makes one attempt to write the batch, within ApplyTimeout.
func (h *handler) apply(applying context.Context, b *batch) attempt {
	start := time.Now()
	ctx, cancel := context.WithTimeout(applying, h.opts.ApplyTimeout)
	defer cancel()
	span := b.spans.applying(ctx)
	a, try := attempt{made: true, limit: b.limit, tried: b.tries()}, h.attempt(b)
	a.failures, a.err = h.opts.Applier.Apply(ctx, h.session.ID(), try, b.changes, b.results)
	a.timedOut = a.err != nil && ctx.Err() != nil
	h.observeApplied(b, span, time.Since(start), a)
	return a
}

// tries reports whether the next attempt tries any change.
func (b *batch) tries() bool {
	for i := range b.first() {
		if b.results[i].Kind == apply.Pending && b.changes[i].Claim == nil && !b.skip[b.changes[i].Aggregate] {
			return true
		}
	}
	return false
}

// attempt selects what to try, with the answers of a program. A failure is returned once: the next
// attempt asks again.
func (h *handler) attempt(b *batch) apply.Attempt {
	a := apply.Attempt{Limit: b.limit, PerAggregate: b.perAggregate, Skip: b.skip}
	for i := range b.events {
		if name := b.changes[i].Aggregate; b.events[i].message.DeliveryCount > 1 && b.results[i].Kind == apply.Pending && !slices.Contains(a.Redelivered, name) {
			a.Redelivered = append(a.Redelivered, name)
		}
	}
	if h.opts.Remote == nil {
		return a
	}
	a.Answer = func(i int) (writes []projection.Write, answered bool, err error) {
		answer := b.events[i].answer
		switch {
		case answer == nil:
			return nil, false, nil
		case answer.Err != nil && !errors.Is(answer.Err, projection.ErrPermanent):
			b.events[i].answer = nil
		}
		return projection.Renamed(h.opts.Projection, answer.Writes), true, answer.Err
	}
	return a
}
