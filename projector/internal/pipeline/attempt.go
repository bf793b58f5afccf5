package pipeline

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/sluice-cdc/sluice/projector/internal/apply"
	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/retry"
	"github.com/sluice-cdc/sluice/shared/telemetry"
)

// write makes one attempt to write the batch, and settles what is decided. The error is why the
// session cannot be handled any further.
func (h *handler) write(receiving, applying context.Context, b *batch, s step) (attempt, error) {
	if !s.parkFirst {
		if err := h.pause(receiving, b, s.pause); err != nil {
			return attempt{}, err
		}
	}
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
	if s.parkFirst {
		if err := h.pause(receiving, b, s.pause); err != nil {
			return a, err
		}
	}
	if err := h.settle(receiving, applying, b); err != nil {
		return a, err
	}
	if a.err == nil {
		b.dropBody()
	}
	return a, nil
}

// pause delays messages that were delivered often, while their session is kept without a worker and
// its lock is renewed. After an error the session must be released: its messages are then delivered
// again, and no delivery count rises.
func (h *handler) pause(receiving context.Context, b *batch, longest time.Duration) error {
	if longest == 0 {
		return nil
	}
	wait := longest/2 + rand.N(longest/2)
	h.opts.Logger.Warn("messages are delivered again and again, because their session's lock was lost each time: waiting before this delivery",
		telemetry.KeySession, h.session.ID(), telemetry.KeyDelivery, b.deliveries, telemetry.KeyWait, wait.Milliseconds())
	if err := h.session.Yield(receiving, b.bytes(), func(bool) { _ = retry.Sleep(receiving, wait) }); err != nil {
		return fmt.Errorf("stop with messages in hand: %w", err)
	}
	return nil
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
	endSpan(span, a.err)
	b.endSpans()
	h.metrics.applied(b, time.Since(start), a)
	h.metrics.projectionsHanging.Set(float64(h.opts.Applier.Hanging()))
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
