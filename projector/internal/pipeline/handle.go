package pipeline

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/sluice-cdc/sluice/projector/internal/apply"
	"github.com/sluice-cdc/sluice/projector/internal/sessions"
	"github.com/sluice-cdc/sluice/shared/retry"
	"github.com/sluice-cdc/sluice/shared/telemetry"
)

// handler handles one session. One goroutine uses it.
type handler struct {
	*Pipeline
	session *sessions.Session
	portion int // for how many events to ask the projection's program at once, after answers that did not fit; 0: all

	// batch is what is in hand: what was received last and, before it, the messages that wait. The
	// aggregates of those fail for reasons of their own, miss a version, or cannot get a body. They
	// stay in hand, in their order, neither applied nor settled, so that the messages of other
	// aggregates behind them are received and handled. Otherwise RECEIVE_BATCH of them would hold
	// up every aggregate of the session.
	batch  *batch
	until  time.Time // when one of them is to be tried again
	joined bool      // the batch held such messages when it was received, and so more than one receive gives
}

// maxDeferred bounds the messages that wait in hand; the memory of a worker bounds them as well.
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
func (p *Pipeline) Handle(receiving, applying context.Context, session *sessions.Session) error {
	h := &handler{Pipeline: p, session: session, batch: &batch{}}
	for {
		err := h.receive(receiving)
		if err == nil {
			err = h.finish(receiving, applying, h.batch)
		}
		if err == nil && h.batch.unknown != nil {
			err = h.leaveUnknown(receiving, h.batch.unknown)
		}
		if err != nil {
			h.batch.abandonSpans()
			return err
		}
	}
}

// receive receives messages, and puts their events behind those that wait in hand. Errors:
// [sessions.ErrRelease].
func (h *handler) receive(ctx context.Context) error {
	called := time.Now()
	messages, err := h.nextMessages(ctx)
	if err != nil {
		return err
	}
	if err := h.awaitDeliveries(ctx, messages); err != nil {
		return err
	}
	b := h.decode(messages)
	if err := h.refuse(ctx, b); err != nil {
		return err
	}
	h.observeReceived(ctx, called, messages, b)
	h.joined = h.batch.len() > 0
	h.batch = join(h.batch, b)
	return nil
}

// nextMessages returns the session's next messages. While some wait in hand, it returns those
// behind them, or none as soon as an aggregate is to be tried again; the session occupies no worker
// until then. Errors: [sessions.ErrRelease].
func (h *handler) nextMessages(ctx context.Context) ([]*azservicebus.ReceivedMessage, error) {
	if h.batch.len() == 0 && !h.joined {
		return h.session.Receive(ctx)
	}
	if err := h.session.Settled(); err != nil { // messages that are being completed need the memory
		return nil, err
	}
	if h.batch.len() == 0 {
		return h.session.Receive(ctx)
	}
	if h.session.Age() >= maxStuck {
		return nil, sessions.ErrRelease
	}
	room := h.batch.len() < h.session.Budget(maxDeferred)
	if room {
		if messages, err := h.session.TryReceive(ctx); len(messages) > 0 || err != nil {
			return messages, err
		}
	}
	return h.session.ReceiveWithin(ctx, max(time.Until(h.until), minWait), h.batch.bytes(), room)
}

// finish applies and settles a batch until all of its messages are decided, or what is undecided
// waits, or must be delivered again. Decided messages are settled while the rest is tried again.
func (h *handler) finish(receiving, applying context.Context, b *batch) error {
	defer b.dropBody()
	var backoff retry.Backoff
	for last := (attempt{}); ; {
		step := h.decider.next(time.Now(), b, last)
		h.report(step)
		var err error
		switch step.action {
		case finish:
			return nil
		case write, writeLater:
			if step.action == writeLater && retry.Sleep(receiving, max(backoff.Next(), askedToWait(step.away))) != nil {
				return fmt.Errorf("stop with a batch in hand: %w", errors.Join(step.unavailable, step.away))
			}
			last, err = h.write(receiving, applying, b)
		case fetch:
			last, err = h.fetch(receiving, b, step.change)
		case deferRest:
			h.until = step.until
			return nil
		case release:
			return sessions.ErrRelease
		case fail:
			return errNoProgress
		}
		if err != nil {
			return err
		}
	}
}

// report writes what a step shows to the log and the metrics.
func (h *handler) report(s step) {
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
