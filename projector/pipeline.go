package projector

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/sluice-cdc/sluice/projector/internal/apply"
	"github.com/sluice-cdc/sluice/projector/internal/sessions"
	"github.com/sluice-cdc/sluice/projector/internal/settle"
	"github.com/sluice-cdc/sluice/shared/envelope"
)

// handle is the data's way through one session, again and again:
//
//	receive → decode → pace → apply → settle → next
//
// [next] decides what to do with what is not decided. A batch that is only to be completed is settled while the next one is received and
// applied.
func (s *service) handle(receiving, applying context.Context, session *sessions.Session) (err error) {
	var completing settlement
	defer func() {
		if errors.Is(err, sessions.ErrRelease) && session.Leave(completing.wait) {
			return
		}
		if late := completing.wait(); late != nil && (err == nil || errors.Is(err, sessions.ErrRelease)) {
			err = late
		}
	}()
	d := s.newDeferred(session)
	for {
		called := time.Now()
		messages, err := d.next(receiving, &completing)
		if err != nil {
			return err
		}
		s.received(messages)
		if err := s.awaitDeliveries(receiving, messages); err != nil {
			return err
		}
		b := s.decode(messages)
		if s.atRisk(messages) { // what might be the last delivery is not waited with before its aggregate is parked
			b.pace = func() error { return s.pace(receiving, session, b, messages) }
		} else if err := s.pace(receiving, session, b, messages); err != nil {
			return err
		}
		if err := s.refuse(receiving, b); err != nil {
			return err
		}
		b.spans = follow(receiving, s.tracer, s.cfg.entity().String(), called, b)
		spans := b.spans
		err = s.finish(receiving, applying, session, d.join(b), d, &completing)
		spans.abandon()
		if err != nil {
			return err
		}
	}
}

// decode reads the messages. One that cannot be read is poison from the start, and so is one that was delivered so often that the
// broker might dead-letter it by itself: unless it turns out to be applied already. Poison parks its aggregate if the message names one;
// otherwise nobody can tell whose event it was, and it parks none.
func (s *service) decode(messages []*azservicebus.ReceivedMessage) *batch {
	var b batch
	last := s.lastDelivery()
	for _, m := range messages {
		change, err := envelope.Decode(m)
		switch {
		case err != nil:
			b.addMessage(m, envelope.Partial(m), apply.Undecodable(err))
		case m.DeliveryCount >= last:
			b.addMessage(m, change, apply.UsedUp(m.DeliveryCount, s.maxDeliveries()))
		default:
			b.addMessage(m, change, apply.Result{})
		}
	}
	return &b
}

// refuse ends the projector if an event shows that its settings are wrong.
func (s *service) refuse(ctx context.Context, b *batch) error {
	if err := s.refuseOwnSource(ctx, b); err != nil {
		return err
	}
	return s.refuseLookedUp(b)
}

// finish applies and settles a batch until all of its messages are decided, or what is undecided waits, or must be delivered again. What is
// decided is settled while the rest is tried on.
func (s *service) finish(
	receiving, applying context.Context, session *sessions.Session, b *batch, d *deferred, completing *settlement,
) error {
	t := s.newTries(session.ID(), b, d)
	defer func() { b.dropBody() }()
	for {
		failures, away := s.applyBatch(applying, session, b, t)
		if applying.Err() != nil {
			return context.Cause(applying)
		}
		if err := completing.wait(); err != nil {
			return err
		}
		if b.pace != nil {
			if err := b.pace(); err != nil {
				return err
			}
		}
		if err := s.settleBatch(receiving, applying, session, b, completing); err != nil {
			return err
		}
		if away == nil {
			b.dropBody()
		}
		var progress bool
		b, progress = b.rest()
		switch next(t.outcome(b, progress, failures, away)) {
		case finished:
			return nil
		case again:
		case later:
			if t.backoff.Wait(receiving) != nil {
				return fmt.Errorf("stop with a batch in hand: %w", away)
			}
		case fetch:
			i, _ := d.fetchable(b, t.leave)
			if err := d.fetch(receiving, b, i); err != nil {
				return err
			}
		case wait:
			d.b = b
			return nil
		case release:
			return sessions.ErrRelease
		case stuck:
			return errNoProgress
		}
	}
}

// applyBatch makes one attempt to write the batch. failures are changes that failed for a reason of their own; away is why nothing more
// could be done.
func (s *service) applyBatch(applying context.Context, session *sessions.Session, b *batch, t *tries) (failures []failure, away error) {
	start := time.Now()
	attempt, cancel := context.WithTimeout(applying, s.cfg.ApplyTimeout)
	defer cancel()
	span := b.spans.applying(attempt)
	tried := t.some(b)
	failed, away := s.applier.Apply(attempt, session.ID(), t.next(), b.changes, b.results)
	endSpan(span, away)
	b.spans.decided(b)
	s.applied(b, time.Since(start), away == nil)
	if committed := s.committed(b); committed || tried && away == nil && len(failed) == 0 && len(t.leave) == 0 {
		s.readModel.Report(nil)
	}
	if away != nil || len(failed) > 0 {
		s.applyFailed()
		t.apart = true
	}
	for _, f := range failed {
		failures = append(failures, failure{&b.changes[f.Index], f.Err})
	}
	t.made(b, away != nil && attempt.Err() != nil)
	return failures, away
}

// settleBatch tells the broker what became of the batch. The effects are committed: only now may a message be completed. It waits
// for the broker's answers, unless all messages are completed: then it leaves that under way, in completing. Dead letters that are left when
// receiving ends are set aside when they are delivered again.
func (s *service) settleBatch(receiving, applying context.Context, session *sessions.Session, b *batch, completing *settlement) error {
	choices := make([]settle.Choice, b.len())
	for i, r := range b.results {
		choices[i] = settle.Choose(r)
		s.logDecision(session.ID(), &b.changes[i], r)
	}
	if !slices.ContainsFunc(choices, func(c settle.Choice) bool { return c.Action != settle.Leave }) {
		return nil
	}
	start, span := time.Now(), b.spans.settling(applying)
	completing.begin(func() error {
		err := settle.Send(receiving, session.Settler(), s.cfg.SettleTimeout, b.messages, choices)
		endSpan(span, err)
		s.settled(choices, time.Since(start), err)
		return err
	})
	if !slices.ContainsFunc(choices, func(c settle.Choice) bool { return c.Action != settle.Complete }) {
		return nil
	}
	return completing.wait()
}
