package publish

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/sluice-cdc/sluice/producer/internal/broker"
	"github.com/sluice-cdc/sluice/shared/telemetry"
)

// separation finds out which messages of a load Service Bus does not take: it sends the load apart from all others and in ever
// smaller parts. Each session's messages are sent in order, so a message that is suspect holds up those behind it; other sessions go
// on meanwhile.
type separation struct {
	lane *lane
	// stuck are the parts from the first suspect message on, in order, of each session that has one.
	stuck   map[*backlog][]*trial
	order   []*backlog // of stuck
	divided bool       // the load was objected to and sent in parts
	refused bool       // a message was refused, and parked
	failure error      // of the last attempt
	// lately is the number of batches that were acknowledged when one was last, and since when there was none.
	lately struct {
		taken int64
		since time.Time
	}
}

// trial is a part of a load that waits behind a suspect message, or is one.
type trial struct {
	load
	held  suspicion
	asked time.Time // when a proof was last asked for
	taken int64     // batches that were acknowledged by then
}

// separate sends a load in parts until every message of it is acknowledged or parked, and releases its sessions. why is [broker.ErrRefused], or
// errSuspect: then the load is sent as it is first.
func (l *lane) separate(ctx context.Context, whole load, why error) error {
	p := l.publisher
	p.log.Warn("Service Bus does not take a batch; sending it apart from all others, in parts",
		telemetry.KeyBatch, len(whole.items), telemetry.KeyError, why)
	s := &separation{lane: l, stuck: map[*backlog][]*trial{}}
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
	allPassed := len(s.order) == 0
	if err := s.insist(ctx); err != nil {
		return err
	}
	said, ok := errors.AsType[*amqp.Error](why)
	switch {
	case ok && said.Condition == amqp.ErrCondMessageSizeExceeded && !s.refused, errors.Is(why, errSuspect) && s.divided && allPassed:
		p.sendFewer(len(whole.items) / 2) // what was objected to is the batch
		return nil
	case s.refused || errors.Is(why, errSuspect):
		return nil
	}
	return fmt.Errorf("send %d events of session %q and %d others in one batch: %w. Each of them was taken by itself, so what is refused is "+
		"the batch: set BATCH_SCOPE=session, and BATCH_MESSAGES lower where it is that already",
		len(whole.items), whole.sessions[0].session, len(whole.sessions)-1, why)
}

// sendFewer makes batches of at most so many messages from now on.
func (p *Publisher) sendFewer(most int) {
	p.batchMessages.Store(min(p.batchMessages.Load(), int64(max(most, 1))))
}

func (s *separation) begin(ctx context.Context, whole load, why error) error {
	switch {
	case errors.Is(why, errSuspect):
		return s.try(ctx, whole)
	case len(whole.items) == 1:
		s.hold(whole)
		return nil
	}
	return s.divide(ctx, whole)
}

// hold makes a part wait until what is before it in its session is decided.
func (s *separation) hold(part load) {
	session := part.sessions[0]
	if s.stuck[session] == nil {
		s.order = append(s.order, session)
	}
	s.stuck[session] = append(s.stuck[session], &trial{load: part})
}

// try sends a part, and its parts. What is suspect at the end, and what is behind it, is stuck.
func (s *separation) try(ctx context.Context, part load) error {
	if s.stuck[part.sessions[0]] != nil {
		s.hold(part) // behind a suspect message, and of its session alone
		return nil
	}
	err := s.send(ctx, part)
	suspect := errors.Is(err, broker.ErrRefused) || errors.Is(err, errSuspect)
	switch {
	case err == nil:
		s.lane.publisher.acknowledged(part)
		return nil
	case suspect && len(part.items) == 1:
		s.hold(part)
		return nil
	case suspect:
		return s.divide(ctx, part)
	}
	return err
}

// insist sends what is stuck, each session in order and all sessions in turn, until each message is acknowledged or refused.
func (s *separation) insist(ctx context.Context) error {
	if len(s.order) == 0 {
		return nil
	}
	s.getsOn()
	var final error
	if err := s.lane.repeat(ctx, len(s.order), func(ctx context.Context) error {
		if final = s.round(ctx); final != nil || len(s.order) == 0 {
			return nil
		}
		return s.failure
	}); err != nil {
		return err
	}
	return final
}

// round gives each session that is stuck its turn. An error ends the separation.
func (s *separation) round(ctx context.Context) error {
	var still []*backlog
	for _, session := range s.order {
		err := s.turn(ctx, session)
		if s.lane.publisher.stopsBefore(err) {
			err, s.stuck[session] = nil, nil // what is behind it in its session is not sent; the other sessions are
		}
		if err != nil {
			return err
		}
		if len(s.stuck[session]) > 0 {
			still = append(still, session)
			continue
		}
		delete(s.stuck, session)
		s.lane.dispatcher.release(session)
	}
	s.order = still
	return nil
}

// turn sends the parts of a session in order, up to one that is not taken and of which it is not decided why.
func (s *separation) turn(ctx context.Context, session *backlog) error {
	for len(s.stuck[session]) > 0 {
		t := s.stuck[session][0]
		err := s.press(ctx, t)
		switch {
		case err == nil:
			s.lane.publisher.acknowledged(t.load)
		case errors.Is(err, errNoProof), errors.Is(err, broker.ErrOversized):
			return err
		case errors.Is(err, broker.ErrRefused) && len(t.items) == 1:
			if err := s.refuse(ctx, t, err); err != nil {
				return err
			}
		case errors.Is(err, broker.ErrRefused), errors.Is(err, errSuspect):
			s.lane.publisher.metrics.split()
			n := len(t.items) / 2
			first, rest, err := t.batch.Split(n)
			if err != nil {
				return err
			}
			s.stuck[session] = append([]*trial{
				{load: load{first, t.items[:n], t.sessions}}, {load: load{rest, t.items[n:], t.sessions}},
			}, s.stuck[session][1:]...)
			continue
		case ctx.Err() != nil:
			return context.Cause(ctx)
		default:
			s.failure = err
			return nil
		}
		s.stuck[session] = s.stuck[session][1:]
	}
	return nil
}

// press sends a part once. Errors: [broker.ErrRefused] if a single message is convicted, and for several of which one may be, errSuspect
// likewise; errNoProof, [broker.ErrOversized]; after any other the part is to be sent again.
func (s *separation) press(ctx context.Context, t *trial) error {
	p := s.lane.publisher
	begun := time.Now()
	err := p.fenced(ctx, func(ctx context.Context) error { return s.lane.attempt(ctx, t.load, p.broker.SendApart) })
	if err == nil {
		p.metrics.acknowledged(len(t.items), time.Since(begun))
		return nil
	}
	now, taken := time.Now(), p.taken.Load()
	t.held.add(err, taken, now)
	switch {
	case errors.Is(err, broker.ErrRefused) && (len(t.items) > 1 || p.config.Refusals == nil), errors.Is(err, broker.ErrOversized), ctx.Err() != nil:
		return err
	case len(t.items) > 1 && t.held.divides(taken):
		return fmt.Errorf("%w: %w", errSuspect, err)
	case len(t.items) > 1:
		return err
	}
	why := fmt.Errorf("send the %s alone: %w", nameOf(t.items[0]), err)
	if t.held.convicts(now, p.config.RefusedAfter) {
		held := p.mayPark(t.items[0], &t.held, why)
		switch {
		case held != nil:
			return fmt.Errorf("%w: %v", held, why) //nolint:errorlint // it is not refused as yet
		case t.held.rejected:
			return err
		}
		return fmt.Errorf("%w: %d times since %s, while others were taken: %w",
			broker.ErrRefused, t.held.objections, t.held.since.UTC().Format(time.RFC3339), err)
	}
	if t.held.questions() {
		s.ask(ctx, t)
	}
	if errors.Is(err, broker.ErrRefused) {
		if !s.getsOn() {
			return fmt.Errorf("%w: %w", errNoProof, why)
		}
		return fmt.Errorf("not taken as yet: %v", why) //nolint:errorlint // it is not refused as yet
	}
	return why
}

// errNoProof is a message that is not parked, because it may be all messages that are refused.
var errNoProof = errors.New("nothing else is taken either, so it is not parked (ON_REFUSED=park): see whether the entity takes messages")

// getsOn reports whether Service Bus has taken anything within half of StallAfter, or the separation is younger than that.
func (s *separation) getsOn() bool {
	p := s.lane.publisher
	if taken := p.taken.Load(); s.lately.since.IsZero() || taken != s.lately.taken {
		s.lately.taken, s.lately.since = taken, time.Now()
	}
	return p.config.StallAfter == 0 || time.Since(s.lately.since) < p.config.StallAfter/2
}

// divide tries the two halves of a part, in order: between sessions where it has several.
func (s *separation) divide(ctx context.Context, part load) error {
	s.lane.publisher.metrics.split()
	s.divided = true
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
	if err := s.try(ctx, load{first, part.items[:n], firsts}); err != nil {
		return err
	}
	return s.try(ctx, load{rest, part.items[n:], rests})
}

// send sends a part apart from all others until it is acknowledged. Errors: [broker.ErrRefused], [broker.ErrOversized], errSuspect if it is to be
// sent in smaller parts or later; or ctx's cause.
func (s *separation) send(ctx context.Context, part load) error {
	l, held := s.lane, suspicion{}
	begun := time.Now()
	err := l.retry(ctx, len(part.items), func(ctx context.Context) error {
		err := l.attempt(ctx, part, l.publisher.broker.SendApart)
		taken := l.publisher.taken.Load()
		held.add(err, taken, time.Now())
		if err != nil && !errors.Is(err, broker.ErrRefused) && held.divides(taken) {
			return fmt.Errorf("%w: %w", errSuspect, err)
		}
		return err
	})
	if err == nil {
		l.publisher.metrics.acknowledged(len(part.items), time.Since(begun))
	}
	return err
}
