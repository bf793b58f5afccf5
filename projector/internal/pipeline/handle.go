package pipeline

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/sluice-cdc/sluice/projector/internal/apply"
	"github.com/sluice-cdc/sluice/projector/internal/remote"
	"github.com/sluice-cdc/sluice/projector/internal/sessions"
	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/shared/retry"
	"github.com/sluice-cdc/sluice/shared/telemetry"
)

// handler handles one session. One goroutine uses it.
type handler struct {
	*Pipeline
	session    *sessions.Session
	completing completion
	answers    *answers // of the projection's program; nil without one

	// deferred holds the messages that wait: their aggregates fail for reasons of their own, miss a
	// version, or cannot get a body. They stay in hand, in their order, neither applied nor
	// settled, so that the messages of other aggregates behind them are received and handled.
	// Otherwise RECEIVE_BATCH of them would hold up every aggregate of the session.
	deferred *batch
	until    time.Time // when one of them is to be tried again
	joined   bool      // the last batch held such messages, and so more than one receive gives
}

// maxDeferred bounds the messages that are kept in hand; the memory of a worker bounds them as
// well.
const maxDeferred = 1000

// minWait bounds from below the pause between two attempts at what is deferred.
const minWait = 100 * time.Millisecond

var errNoProgress = errors.New("a batch was applied, and no message of it was decided")

// Handle carries the messages of one session into the read model, batch after batch:
//
//	receive → decode → apply → settle → next
//
// [decider.next] decides what to do with changes that are not decided. A batch that is only to be
// completed is settled while the next one is received and applied.
func (p *Pipeline) Handle(receiving, applying context.Context, session *sessions.Session) (err error) {
	h := &handler{Pipeline: p, session: session, deferred: &batch{}}
	if p.opts.Remote != nil {
		h.answers = &answers{of: make(map[*azservicebus.ReceivedMessage]*remote.Outcome), room: p.opts.AnswerBytes}
	}
	defer func() {
		if errors.Is(err, sessions.ErrRelease) && session.ReleaseAfter(h.completing.wait) {
			return
		}
		if late := h.completing.wait(); late != nil && (err == nil || errors.Is(err, sessions.ErrRelease)) {
			err = late
		}
	}()
	for {
		called := time.Now()
		messages, err := h.receive(receiving)
		if err != nil {
			return err
		}
		p.metrics.received(messages)
		if err := p.awaitDeliveries(receiving, messages); err != nil {
			return err
		}
		b, unknown, err := h.take(receiving, called, messages)
		if err != nil {
			return err
		}
		err = h.finish(receiving, applying, b)
		b.dropBody()
		b.spans.abandon()
		if err == nil && unknown != nil {
			err = h.leaveUnknown(receiving, unknown)
		}
		if err != nil {
			return err
		}
	}
}

// receive returns the session's next messages. While some are deferred, it returns those behind
// them, or none as soon as an aggregate is to be tried again; the session occupies no worker until
// then. Errors: [sessions.ErrRelease].
func (h *handler) receive(ctx context.Context) ([]*azservicebus.ReceivedMessage, error) {
	if h.deferred.len() == 0 && !h.joined {
		return h.session.Receive(ctx)
	}
	if err := h.completing.wait(); err != nil { // messages that are being completed need the memory
		return nil, err
	}
	if h.deferred.len() == 0 {
		return h.session.Receive(ctx)
	}
	if h.session.Age() >= maxStuck {
		return nil, sessions.ErrRelease
	}
	room := h.deferred.len() < h.session.Budget(maxDeferred)
	if room {
		if messages, err := h.session.TryReceive(ctx); len(messages) > 0 || err != nil {
			return messages, err
		}
	}
	return h.session.ReceiveWithin(ctx, max(time.Until(h.until), minWait), h.deferred.bytes(), room)
}

// take returns the batch of the messages that were received, behind those that were deferred.
// called is when they were requested. unknown is as of decode. Errors: [sessions.ErrRelease].
func (h *handler) take(ctx context.Context, called time.Time, messages []*azservicebus.ReceivedMessage) (b *batch, unknown *azservicebus.ReceivedMessage, err error) {
	b, unknown = h.decode(messages)
	if err := h.refuse(ctx, b); err != nil {
		return nil, nil, err
	}
	b.spans = follow(ctx, h.opts.Tracer, h.opts.Entity.String(), called, b)
	h.joined = h.deferred.len() > 0
	b = join(h.deferred, b)
	b.answers = h.answers
	h.deferred = &batch{}
	return b, unknown, nil
}

// finish applies and settles a batch until all of its messages are decided, or what is undecided
// waits, or must be delivered again. Decided messages are settled while the rest is tried again.
func (h *handler) finish(receiving, applying context.Context, b *batch) error {
	var backoff retry.Backoff
	for last := (attempt{}); ; {
		step := h.decider.next(time.Now(), b, last)
		h.report(b, step)
		switch step.action {
		case finish:
			return nil
		case write:
		case writeLater:
			if retry.Sleep(receiving, max(backoff.Next(), askedToWait(step.away))) != nil {
				return fmt.Errorf("stop with a batch in hand: %w", errors.Join(step.unavailable, step.away))
			}
		case fetch:
			if err := h.fetch(receiving, b, step.change); err != nil {
				return err
			}
		case deferRest:
			h.deferred, h.until = b, step.until
			return nil
		case release:
			return sessions.ErrRelease
		case fail:
			return errNoProgress
		}
		var err error
		if last, err = h.write(receiving, applying, b, step); err != nil {
			return err
		}
	}
}

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
	if err := h.completing.wait(); err != nil {
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
	a := attempt{made: true, limit: b.limit, tried: b.tries()}
	a.failures, a.err = h.opts.Applier.Apply(ctx, h.session.ID(), h.attempt(b), b.changes, b.results)
	a.timedOut = a.err != nil && ctx.Err() != nil
	endSpan(span, a.err)
	b.spans.decided(b)
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
	for i, m := range b.messages {
		if name := b.changes[i].Aggregate; m.DeliveryCount > 1 && b.results[i].Kind == apply.Pending && !slices.Contains(a.Redelivered, name) {
			a.Redelivered = append(a.Redelivered, name)
		}
	}
	if b.answers == nil {
		return a
	}
	a.Answer = func(i int) (writes []projection.Write, answered bool, err error) {
		answer := b.answers.get(b.messages[i])
		switch {
		case answer == nil:
			return nil, false, nil
		case answer.Err != nil && !errors.Is(answer.Err, projection.ErrPermanent):
			b.answers.drop(b.messages[i])
		}
		return projection.Renamed(h.opts.Projection, answer.Writes), true, answer.Err
	}
	return a
}

// fetch gets the body of a change, while other sessions are handled. A body that is gone or corrupt
// makes its event poison; one that cannot be fetched now is fetched again later.
func (h *handler) fetch(ctx context.Context, b *batch, i int) error {
	var done func()
	var err error
	c, claim := &b.changes[i], b.changes[i].Claim
	stop := h.session.Yield(ctx, b.bytes(), func(bool) { done, err = h.claims.fetch(ctx, c) })
	switch refusal, final := errors.AsType[*envelope.Error](err); {
	case stop != nil:
		if err == nil {
			done()
		}
		return stop
	case final:
		b.results[i] = apply.Undecodable(refusal)
	case err != nil:
		h.decider.fetchFailed(time.Now(), b, i)
	default:
		b.fetched = &fetchedBody{message: b.messages[i], claim: claim, done: done}
		return h.refuse(ctx, &batch{changes: b.changes[i : i+1]})
	}
	return nil
}

// report writes what a step shows to the log and the metrics.
func (h *handler) report(b *batch, s step) {
	switch {
	case s.available:
		h.readModel.Report(nil)
	case s.unavailable != nil:
		h.readModel.Report(s.unavailable)
	}
	if s.versionGap {
		h.metrics.gaps.Inc()
	}
	for _, f := range s.failing {
		h.opts.Logger.Warn("an event cannot be applied; it is retried, and its aggregate waits", telemetry.KeyAggregate, f.change.Aggregate,
			telemetry.KeySession, h.session.ID(), telemetry.KeyMessageID, f.change.MessageID, telemetry.KeyCode, apply.Code(f.err),
			telemetry.KeyFor, f.since.Round(time.Second).String(), telemetry.KeyError, f.err)
	}
}
