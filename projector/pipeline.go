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
	"github.com/sluice-cdc/sluice/shared/retry"
)

// handle is one session's way: receive → pace → decode → plan and apply → settle, again and again. A batch of which nothing is
// left but to complete it is settled while the next one is received and applied.
func (s *service) handle(receiving, applying context.Context, session *sessions.Session) (err error) {
	var completing settlement
	defer func() {
		if late := completing.wait(); late != nil && (err == nil || errors.Is(err, sessions.ErrRelease)) {
			err = late
		}
	}()
	for {
		called := time.Now()
		messages, err := session.Receive(receiving)
		if err != nil {
			return err
		}
		if s.gaps.Waiting() { // what an event waits for may be behind it
			messages = session.Complete(receiving, messages)
		}
		s.received(messages)
		if err := s.pace(receiving, session, messages); err != nil {
			return err
		}
		b := s.decode(messages)
		b.spans = follow(receiving, s.tracer, s.cfg.entity().String(), called, b)
		err = s.finishParts(receiving, applying, session, b, &completing)
		b.spans.abandon()
		if err != nil {
			return err
		}
	}
}

// finish deals with a batch until every message of it is decided, or what is left must be delivered again.
func (s *service) finish(
	receiving, applying context.Context, session *sessions.Session, b *batch, completing *settlement,
) error {
	for b.len() > 0 {
		if err := s.apply(receiving, applying, session, b); err != nil {
			return err
		}
		if err := completing.wait(); err != nil {
			return err
		}
		if err := s.settle(applying, session, b, completing); err != nil {
			return err
		}
		rest, progress := b.rest()
		if !progress && rest.len() > 0 {
			if err := s.awaitVersions(receiving, rest); err != nil {
				return err
			}
		}
		b = rest
	}
	return nil
}

// batch is received messages, each with its change and what became of it.
type batch struct {
	messages []*azservicebus.ReceivedMessage
	changes  []envelope.Change
	results  []apply.Result
	gaps     int    // changes that were behind a gap before this round
	spans    *spans // nil when nobody traces them
}

func (b *batch) len() int { return len(b.messages) }

// rest is the part of the batch that is still to be dealt with: changes that wait for another one of their aggregate. With
// progress that one is out of the way; without, all that is left waits for a version that has not come.
func (b *batch) rest() (rest *batch, progress bool) {
	rest = &batch{spans: b.spans}
	applied := make(map[string]bool)
	for i, r := range b.results {
		if r.Kind == apply.Applied {
			applied[b.changes[i].Aggregate] = true
		}
	}
	for i, r := range b.results {
		if r.Kind == apply.Gap && applied[b.changes[i].Aggregate] {
			r = apply.Result{} // what was applied may close it
		}
		switch r.Kind {
		case apply.Gap:
			rest.gaps++
		case apply.Pending:
		case apply.Applied, apply.Duplicate, apply.Poison, apply.Parked:
			continue
		}
		rest.add(b.messages[i], b.changes[i], r)
	}
	return rest, rest.len() < b.len() || rest.gaps != b.gaps
}

func (b *batch) add(m *azservicebus.ReceivedMessage, c envelope.Change, r apply.Result) {
	b.messages = append(b.messages, m)
	b.changes = append(b.changes, c)
	b.results = append(b.results, r)
}

// decode reads the messages. One that cannot be read is poison from the start. It parks its aggregate where the message
// names one; else nobody can tell whose event it was, and it holds up nothing.
func (s *service) decode(messages []*azservicebus.ReceivedMessage) *batch {
	var b batch
	for _, m := range messages {
		change, err := envelope.Decode(m)
		if err == nil {
			b.add(m, change, apply.Result{})
			continue
		}
		b.add(m, envelope.Partial(m), apply.Undecodable(err))
	}
	return &b
}

// maxStuck is how long a session is kept whose batch cannot be dealt with. The service detaches a link that nobody uses for
// ten minutes, and then the locks of its messages run out, which raises their delivery counts. Given back before, they do
// not rise; whoever accepts the session next tries again.
const maxStuck = 5 * time.Minute

// apply writes the batch. While the database is away it tries again, with the session kept and its lock renewed, or given
// back and accepted again every maxStuck, for as long as it takes: no delivery count rises. It gives up only when the lock
// is lost or the projector stops.
func (s *service) apply(receiving, applying context.Context, session *sessions.Session, b *batch) error {
	var backoff retry.Backoff
	for began := time.Now(); ; {
		start := time.Now()
		attempt, cancel := context.WithTimeout(applying, s.cfg.ApplyTimeout)
		span := b.spans.applying(attempt)
		err := s.applier.Apply(attempt, session.ID(), b.changes, b.results)
		finish(span, err)
		cancel()
		if err == nil {
			b.spans.decided(b)
			s.store.Report(nil)
			s.applied(b, time.Since(start))
			return nil
		}
		if applying.Err() != nil {
			return context.Cause(applying)
		}
		s.applyFailed()
		s.store.Report(err)
		if time.Since(began) >= maxStuck {
			return sessions.ErrRelease
		}
		if backoff.Wait(receiving) != nil {
			return fmt.Errorf("stop with a batch in hand: %w", err)
		}
	}
}

// settle tells the broker what became of the batch. The effects are committed: only now may a message be completed. It
// waits for the broker's answers, unless all there is to do is complete: then that is left under way.
func (s *service) settle(ctx context.Context, session *sessions.Session, b *batch, completing *settlement) error {
	choices := make([]settle.Choice, b.len())
	for i, r := range b.results {
		choices[i] = settle.Choose(r)
		s.tell(session.ID(), &b.changes[i], r)
	}
	start, span := time.Now(), b.spans.settling(ctx)
	completing.begin(func() error {
		err := settle.Send(ctx, session.Settler(), s.cfg.SettleTimeout, b.messages, choices)
		finish(span, err)
		s.settled(choices, time.Since(start), err)
		return err
	})
	if !slices.ContainsFunc(choices, func(c settle.Choice) bool { return c.Action != settle.Complete }) {
		return nil
	}
	return completing.wait()
}
