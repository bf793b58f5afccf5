package pipeline

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/sluice-cdc/sluice/projector/internal/apply"
	"github.com/sluice-cdc/sluice/projector/internal/remote"
	"github.com/sluice-cdc/sluice/projector/internal/sessions"
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
		messages, unknown := untilUnknown(messages)
		if unknown != nil && len(messages) == 0 {
			return h.leaveUnknown(receiving, unknown)
		}
		b, err := h.take(receiving, called, messages)
		if err != nil {
			return err
		}
		err = h.finish(receiving, applying, b)
		b.dropBody()
		b.spans.abandon()
		if err != nil {
			return err
		}
		if unknown != nil {
			return h.leaveUnknown(receiving, unknown)
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
