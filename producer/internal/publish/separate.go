package publish

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/sluice-cdc/sluice/shared/telemetry"
)

// separation finds out which messages of a load Service Bus does not take: it sends the load apart from all others and in ever
// smaller parts. Each session's messages are sent in order, so a message that is suspect holds up those behind it; other sessions go
// first, which also shows that the broker takes something.
type separation struct {
	lane *lane
	held map[*item]*suspicion // of messages that were sent alone
	// stuck are the parts from the first suspect message on, in order, of each session that has one.
	stuck   map[*backlog][]load
	order   []*backlog // of stuck
	leased  []*backlog // sessions of the load that have not been released
	refused bool       // a message was refused, and parked
}

// separate sends a load in parts until every message of it is acknowledged or parked, and releases its sessions. why is [ErrRefused], or
// errSuspect: then the load is sent as it is first.
func (l *lane) separate(ctx context.Context, whole load, why error) error {
	p := l.publisher
	p.log.Warn("Service Bus does not take a batch; sending it apart from all others, in parts",
		telemetry.KeyBatch, len(whole.items), telemetry.KeyError, why)
	s := &separation{lane: l, held: map[*item]*suspicion{}, stuck: map[*backlog][]load{}, leased: whole.sessions}
	if err := s.begin(ctx, whole, why); err != nil {
		if d, ok := errors.AsType[*doomed](err); ok && len(whole.items) > 1 {
			return d.why // what else is in the load has not been sent
		}
		return err
	}
	for _, session := range whole.sessions {
		if s.stuck[session] == nil {
			l.dispatcher.release(session)
		}
	}
	for n, session := range s.order {
		s.leased = s.order[n:]
		for _, part := range s.stuck[session] {
			err := s.insist(ctx, part)
			if p.stopsBefore(err) {
				break // what is behind it in its session is not sent; the other sessions are
			}
			if err != nil {
				return err
			}
		}
		l.dispatcher.release(session)
	}
	said, ok := errors.AsType[*amqp.Error](why)
	switch {
	case s.refused || errors.Is(why, errSuspect):
		return nil
	case ok && said.Condition == amqp.ErrCondMessageSizeExceeded:
		p.batchMessages.Store(int64(max(len(whole.items)/2, 1)))
		return nil
	}
	return fmt.Errorf("send %d events of session %q and %d others in one batch: %w. Each of them was taken by itself, so what is refused is "+
		"the batch: set BATCH_SCOPE=session, and BATCH_MESSAGES lower where it is that already",
		len(whole.items), whole.sessions[0].session, len(whole.sessions)-1, why)
}

func (s *separation) begin(ctx context.Context, whole load, why error) error {
	switch {
	case errors.Is(why, errSuspect):
		return s.try(ctx, whole)
	case len(whole.items) == 1:
		return s.refuse(ctx, whole, why)
	}
	return s.divide(ctx, whole, s.try)
}

// try sends a part, and its parts. What is suspect at the end, and what is behind it, is stuck.
func (s *separation) try(ctx context.Context, part load) error {
	first := part.sessions[0]
	if s.stuck[first] != nil {
		s.stuck[first] = append(s.stuck[first], part) // behind a suspect message, and of its session alone
		return nil
	}
	err := s.send(ctx, part, false)
	if len(part.items) == 1 && (errors.Is(err, errSuspect) || errors.Is(err, ErrRefused)) {
		s.stuck[first], s.order = []load{part}, append(s.order, first)
		return nil
	}
	return s.resolve(ctx, part, err, s.try)
}

// insist sends a part, and its parts, until each message is acknowledged or refused.
func (s *separation) insist(ctx context.Context, part load) error {
	return s.resolve(ctx, part, s.send(ctx, part, true), s.insist)
}

func (s *separation) resolve(ctx context.Context, part load, err error, next func(context.Context, load) error) error {
	switch {
	case err == nil:
		s.lane.publisher.acknowledged(part)
		return nil
	case !errors.Is(err, ErrRefused) && !errors.Is(err, errSuspect):
		return err
	case len(part.items) == 1:
		return s.refuse(ctx, part, err)
	}
	return s.divide(ctx, part, next)
}

// divide sends the two halves of a part, in order: between sessions where it has several.
func (s *separation) divide(ctx context.Context, part load, next func(context.Context, load) error) error {
	s.lane.publisher.metrics.split()
	n, of := len(part.items)/2, len(part.sessions)/2
	firsts, rests := part.sessions, part.sessions
	if of > 0 {
		firsts, rests = part.sessions[:of], part.sessions[of:]
		for n = 0; part.items[n].session != rests[0].session; n++ { //nolint:revive // counts the messages of the first sessions
		}
	}
	first, rest, err := part.batch.Split(n)
	if err != nil {
		return err
	}
	if err := next(ctx, load{first, part.items[:n], firsts}); err != nil {
		return err
	}
	return next(ctx, load{rest, part.items[n:], rests})
}

// send sends a part until it is acknowledged, apart from all others. Errors: [ErrRefused], [ErrOversized], errSuspect where it is to be
// sent in smaller parts, or (unless insisting) later; or ctx's cause.
func (s *separation) send(ctx context.Context, part load, insisting bool) error {
	l, held, single := s.lane, &suspicion{}, len(part.items) == 1
	if single {
		if s.held[part.items[0]] == nil {
			s.held[part.items[0]] = held
		}
		held = s.held[part.items[0]]
	}
	begun := time.Now()
	err := l.retry(ctx, len(part.items), func(ctx context.Context) error {
		err := l.attempt(ctx, part, l.publisher.broker.SendApart)
		taken := l.publisher.taken.Load()
		held.add(err, taken)
		switch {
		case err == nil || errors.Is(err, ErrRefused):
			return err
		case single && insisting && held.convicts(taken):
			return fmt.Errorf("%w: %d times, while others were taken: %w", ErrRefused, held.objections, err)
		case single && insisting:
			if held.objections >= objectionsForGood {
				_ = s.vouch(ctx) // whether this message is to blame is seen at its next attempt
			}
			return fmt.Errorf("send the %s alone: %w", nameOf(part.items[0]), err)
		case held.divides(taken):
			return fmt.Errorf("%w: %w", errSuspect, err)
		}
		return err
	})
	if err == nil {
		l.publisher.metrics.acknowledged(len(part.items), time.Since(begun))
	}
	return err
}
