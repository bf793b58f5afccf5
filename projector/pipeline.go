package projector

import (
	"context"
	"errors"
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
//	receive → pace → decode → redeem → apply → settle
//
// A batch that is only to be completed is settled while the next one is received and applied.
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
	left := s.newLeft()
	for {
		called := time.Now()
		messages, err := left.next(receiving, session, &completing)
		if err != nil {
			return err
		}
		if s.gaps.Waiting() { // the version that an event waits for may be right behind it
			messages = session.Gather(receiving, messages)
		}
		s.received(messages)
		if err := s.awaitDeliveries(receiving, messages); err != nil {
			return err
		}
		b := s.decode(messages)
		if s.atRisk(messages) { // what might be the last delivery is not waited with before its aggregate is parked
			b.pace = func() error { return s.pace(receiving, session, messages) }
		} else if err := s.pace(receiving, session, messages); err != nil {
			return err
		}
		b.spans = follow(receiving, s.tracer, s.cfg.entity().String(), called, b)
		err = s.finishParts(receiving, applying, session, b, left, &completing)
		b.spans.abandon()
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

// finishParts finishes a batch, part by part.
func (s *service) finishParts(
	receiving, applying context.Context, session *sessions.Session, b *batch, left *left, completing *settlement,
) error {
	for part := range b.parts() {
		done, err := s.redeem(receiving, part)
		if err == nil {
			err = s.refuseOwnSource(receiving, part)
		}
		if err == nil {
			err = s.refuseLookedUp(part)
		}
		if err == nil {
			err = s.finish(receiving, applying, session, part, left, completing)
		}
		if done != nil {
			part.changes[0].Body = nil // the batch holds the change until all of its parts are through
			done()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// redeem gets the body of a batch that has a claim check, retrying for as long as that takes: while storage is away the session is
// kept, and released every maxStuck. A body that is gone or corrupt makes its event poison. done frees the memory of the body; nil:
// there is none.
func (s *service) redeem(receiving context.Context, b *batch) (done func(), err error) {
	if b.changes[0].Claim == nil || b.results[0].Kind != apply.Pending {
		return nil, nil
	}
	receiving, cancel := context.WithTimeoutCause(receiving, maxStuck, sessions.ErrRelease)
	defer cancel()
	done, err = s.claims.Redeem(receiving, &b.changes[0])
	if refusal, ok := errors.AsType[*envelope.Error](err); ok {
		b.results[0] = apply.Undecodable(refusal)
		return done, nil
	}
	return done, err
}

// finish applies and settles a batch until all of its messages are decided, or those that are left are kept in hand or must be delivered
// again. What is decided is settled while the rest is tried on.
func (s *service) finish(
	receiving, applying context.Context, session *sessions.Session, b *batch, left *left, completing *settlement,
) error {
	t := s.newTries(session.ID(), b, left)
	for b.len() > 0 {
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
		if err := s.settleBatch(applying, session, b, completing); err != nil {
			return err
		}
		rest, progress := b.rest()
		var err error
		switch {
		case rest.len() == 0:
		case away != nil:
			err = t.database(receiving, rest, away)
		case len(failures) > 0:
			t.alone(rest, failures)
		case !progress && rest.gaps == 0 && t.leavesSome():
			if left.keep(rest) {
				return nil
			}
			err = left.giveBack(receiving)
		case !progress:
			err = s.awaitVersions(receiving, rest)
		}
		if err != nil {
			return err
		}
		b = rest
	}
	return nil
}

// applyBatch makes one attempt to write the batch. failures are changes that failed for a reason of their own; away is why nothing more
// could be done.
func (s *service) applyBatch(applying context.Context, session *sessions.Session, b *batch, t *tries) (failures []failure, away error) {
	start := time.Now()
	attempt, cancel := context.WithTimeout(applying, s.cfg.ApplyTimeout)
	defer cancel()
	span := b.spans.applying(attempt)
	failed, away := s.applier.Apply(attempt, session.ID(), t.next(), b.changes, b.results)
	endSpan(span, away)
	b.spans.decided(b)
	s.applied(b, time.Since(start), away == nil)
	if committed := s.committed(b); committed || away == nil && len(failed) == 0 && !t.leavesSome() {
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
// for the broker's answers, unless all messages are completed: then it leaves that under way, in completing.
func (s *service) settleBatch(ctx context.Context, session *sessions.Session, b *batch, completing *settlement) error {
	choices := make([]settle.Choice, b.len())
	for i, r := range b.results {
		choices[i] = settle.Choose(r)
		s.logDecision(session.ID(), &b.changes[i], r)
	}
	if !slices.ContainsFunc(choices, func(c settle.Choice) bool { return c.Action != settle.Leave }) {
		return nil
	}
	start, span := time.Now(), b.spans.settling(ctx)
	completing.begin(func() error {
		err := settle.Send(ctx, session.Settler(), s.cfg.SettleTimeout, b.messages, choices)
		endSpan(span, err)
		s.settled(choices, time.Since(start), err)
		return err
	})
	if !slices.ContainsFunc(choices, func(c settle.Choice) bool { return c.Action != settle.Complete }) {
		return nil
	}
	return completing.wait()
}
