package projector

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/sluice-cdc/sluice/projector/internal/apply"
	"github.com/sluice-cdc/sluice/projector/internal/sessions"
	"github.com/sluice-cdc/sluice/projector/internal/settle"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/shared/retry"
	"github.com/sluice-cdc/sluice/shared/telemetry"
)

// handle is one session's way: receive → decode → plan and apply → settle, again and again.
func (s *service) handle(receiving, applying context.Context, session *sessions.Session) error {
	for {
		messages, err := session.Receive(receiving)
		if err != nil {
			return err
		}
		s.received(messages)
		for b := s.decode(messages); b.len() > 0; b = b.pending() {
			if err := s.apply(receiving, applying, b); err != nil {
				return err
			}
			if err := s.settle(applying, session, b); err != nil {
				return err
			}
			if b.decided() == 0 {
				return errNoProgress
			}
		}
	}
}

var errNoProgress = errors.New("a batch was applied and nothing of it decided")

// batch is received messages, each with its change and what became of it.
type batch struct {
	messages []*azservicebus.ReceivedMessage
	changes  []envelope.Change
	results  []apply.Result
}

func (b *batch) len() int { return len(b.messages) }

// decided counts the messages that are no longer pending.
func (b *batch) decided() int { return b.len() - b.pending().len() }

// pending is the part of the batch that is still to be dealt with: changes that wait for a poisoned one before them,
// which is out of the way by now.
func (b *batch) pending() *batch {
	var rest batch
	for i, r := range b.results {
		if r.Kind == apply.Pending {
			rest.add(b.messages[i], b.changes[i], r)
		}
	}
	return &rest
}

func (b *batch) add(m *azservicebus.ReceivedMessage, c envelope.Change, r apply.Result) {
	b.messages = append(b.messages, m)
	b.changes = append(b.changes, c)
	b.results = append(b.results, r)
}

// decode reads the messages. One that cannot be read is poison from the start and names no aggregate, so it holds up
// nothing.
func (s *service) decode(messages []*azservicebus.ReceivedMessage) *batch {
	var b batch
	for _, m := range messages {
		change, err := envelope.Decode(m)
		if err == nil {
			b.add(m, change, apply.Result{})
			continue
		}
		result := apply.Result{Kind: apply.Poison, Reason: "Undecodable", Description: err.Error()}
		if e, ok := errors.AsType[*envelope.Error](err); ok {
			result.Reason, result.Description = string(e.Reason), e.Description
		}
		b.add(m, envelope.Change{}, result)
	}
	return &b
}

// apply writes the batch, for as long as it takes: while the database is away the session is kept and its lock renewed,
// so that no delivery count rises. It gives up only when the lock is lost or the projector stops.
func (s *service) apply(receiving, applying context.Context, b *batch) error {
	var backoff retry.Backoff
	for {
		start := time.Now()
		attempt, cancel := context.WithTimeout(applying, s.cfg.ApplyTimeout)
		err := s.applier.Apply(attempt, b.changes, b.results)
		cancel()
		if err == nil {
			s.store.Report(nil)
			s.applied(b, time.Since(start))
			return nil
		}
		if applying.Err() != nil {
			return context.Cause(applying)
		}
		s.applyFailed()
		s.store.Report(err)
		if backoff.Wait(receiving) != nil {
			return fmt.Errorf("stop with a batch in hand: %w", err)
		}
	}
}

// settle tells the broker what became of the batch. The effects are committed: only now may a message be completed.
func (s *service) settle(ctx context.Context, session *sessions.Session, b *batch) error {
	choices := make([]settle.Choice, b.len())
	for i, r := range b.results {
		choices[i] = settle.Choose(r)
		if choices[i].Action == settle.DeadLetter {
			s.log.Warn("message dead-lettered",
				telemetry.KeySession, session.ID(), telemetry.KeyMessageID, b.messages[i].MessageID, telemetry.KeyReason, choices[i].Reason)
		}
	}
	start := time.Now()
	err := settle.Send(ctx, session.Settler(), s.cfg.SettleTimeout, b.messages, choices)
	s.settled(choices, time.Since(start), err)
	return err
}
