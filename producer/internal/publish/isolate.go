package publish

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/sluice-cdc/sluice/producer/internal/broker"
	"github.com/sluice-cdc/sluice/shared/telemetry"
)

// isolator finds the messages that Service Bus refuses, by sending the batch on a connection of its
// own in ever smaller halves. The messages of each session are sent in order, so a suspect message
// delays those behind it in its session; other sessions continue.
type isolator struct {
	lane *lane
	// pending holds, for each session with a suspect message, its parts from that message on, in
	// order.
	pending    map[*backlog][]*part
	sessions   []*backlog // the keys of pending, in order
	wasSplit   bool       // the batch was objected to and sent in parts
	wasPending bool       // a part was not accepted at once
	anyRefused bool       // a message was refused and parked
	lastError  error      // of the last attempt
	// lastProgress is the latest count of acknowledged batches, and the time at which it last
	// changed.
	lastProgress struct {
		acknowledgements int64
		since            time.Time
	}
}

// part is a part of a batch that waits behind a suspect message, or contains it.
type part struct {
	loadedBatch
	history     failureHistory
	probedAt    time.Time // when proof was last requested
	acksAtProbe int64     // batches acknowledged at that time
}

// isolate sends a batch in parts until every message of it is acknowledged or parked, and releases
// its sessions. why is [broker.ErrRefused] or errSuspect; after errSuspect the batch is first sent
// as a whole.
func (l *lane) isolate(ctx context.Context, whole loadedBatch, why error) error {
	p := l.publisher
	p.log.Warn("Service Bus does not accept a batch; sending it in parts on a connection of its own",
		telemetry.KeyBatch, len(whole.items), telemetry.KeyError, why)
	s := &isolator{lane: l, pending: map[*backlog][]*part{}}
	if err := s.start(ctx, whole, why); err != nil {
		if d, ok := errors.AsType[*unsendable](err); ok && len(whole.items) > 1 {
			return d.why // the rest of the batch has not been sent
		}
		return err
	}
	if s.wasPending {
		for _, session := range whole.sessions {
			if s.pending[session] == nil {
				l.dispatcher.release(session)
			}
		}
		if err := s.sendUntilDecided(ctx); err != nil {
			return err
		}
		return s.conclude(whole, why)
	}
	err := s.conclude(whole, why) // before another lane fills the next batch of these sessions
	l.dispatcher.release(whole.sessions...)
	return err
}

// conclude limits later batches if this one was objected to as a whole. The error is that of a
// batch which was refused although each of its messages was accepted.
func (s *isolator) conclude(whole loadedBatch, why error) error {
	p := s.lane.publisher
	answer, ok := errors.AsType[*amqp.Error](why)
	tooLarge := ok && answer.Condition == amqp.ErrCondMessageSizeExceeded
	if s.wasSplit && !s.wasPending && !tooLarge {
		explained, known := p.sessions.refused(len(whole.sessions), errors.Is(why, broker.ErrRefused))
		if explained && !known {
			p.log.Info("Service Bus accepts each session of a batch, but not the batch, as a partitioned entity does; from now on a batch holds one session",
				telemetry.KeyError, why)
		}
		if explained {
			return nil
		}
	}
	switch largest := slices.Max(whole.events); {
	case largest > 1 && s.wasSplit && !s.anyRefused: // the messages were objected to, and no single event
		p.packEvents.lower(time.Now(), largest/2)
		return nil
	case tooLarge && !s.anyRefused, errors.Is(why, errSuspect) && s.wasSplit && !s.wasPending:
		p.batchMessages.lower(time.Now(), whole.count()/2) // the batch was objected to, and no single message
		return nil
	case s.wasPending || errors.Is(why, errSuspect):
		return nil // a message, and not the batch, may be what was refused
	}
	return fmt.Errorf("send %d events of session %q and %d others in one batch: %w. Each of them was accepted on its own, so the batch is "+
		"refused: set BATCH_SCOPE=session, or lower BATCH_MESSAGES if that is set already",
		len(whole.items), whole.sessions[0].session, len(whole.sessions)-1, why)
}

func (s *isolator) start(ctx context.Context, whole loadedBatch, why error) error {
	switch {
	case errors.Is(why, errSuspect):
		return s.sendOrSplit(ctx, whole)
	case len(whole.items) == 1:
		s.addPending(whole)
		return nil
	}
	return s.split(ctx, whole)
}

// addPending queues a part until everything before it in its session is decided.
func (s *isolator) addPending(b loadedBatch) {
	s.wasPending = true
	session := b.sessions[0]
	if s.pending[session] == nil {
		s.sessions = append(s.sessions, session)
	}
	s.pending[session] = append(s.pending[session], &part{loadedBatch: b})
}

// sendOrSplit sends a batch, and its parts if necessary. What is still suspect at the end, and
// everything behind it, becomes pending.
func (s *isolator) sendOrSplit(ctx context.Context, b loadedBatch) error {
	if s.pending[b.sessions[0]] != nil {
		s.addPending(b) // behind a suspect message of the same session
		return nil
	}
	_, err := s.lane.send(ctx, b, s.lane.publisher.broker.SendIsolated, (*failureHistory).shouldSplit)
	suspect := errors.Is(err, broker.ErrRefused) || errors.Is(err, errSuspect)
	switch {
	case err == nil:
		s.lane.publisher.acknowledged(b)
		return nil
	case suspect && len(b.items) == 1:
		s.addPending(b)
		return nil
	case suspect:
		return s.split(ctx, b)
	}
	return err
}

// sendUntilDecided sends the pending parts, each session in order and the sessions in turn, until
// each message is acknowledged or refused.
func (s *isolator) sendUntilDecided(ctx context.Context) error {
	s.progressing()
	var final error
	if err := s.lane.retryUnfenced(ctx, len(s.sessions), func(ctx context.Context) error {
		if final = s.sendRound(ctx); final != nil || len(s.sessions) == 0 {
			return nil
		}
		return s.lastError
	}); err != nil {
		return err
	}
	return final
}

// sendRound gives each pending session its turn. An error ends the isolation.
func (s *isolator) sendRound(ctx context.Context) error {
	var still []*backlog
	for _, session := range s.sessions {
		err := s.sendPending(ctx, session)
		if s.lane.publisher.haltAt(err) {
			err, s.pending[session] = nil, nil // the rest of this session is not sent; the other sessions are
		}
		if err != nil {
			return err
		}
		if len(s.pending[session]) > 0 {
			still = append(still, session)
			continue
		}
		delete(s.pending, session)
		s.lane.dispatcher.release(session)
	}
	s.sessions = still
	return nil
}

// sendPending sends the parts of a session in order, up to a part that fails for an undecided
// reason.
func (s *isolator) sendPending(ctx context.Context, session *backlog) error {
	for len(s.pending[session]) > 0 {
		t := s.pending[session][0]
		err := s.sendOnce(ctx, t)
		switch {
		case err == nil:
			s.lane.publisher.acknowledged(t.loadedBatch)
		case errors.Is(err, errNoProof), errors.Is(err, broker.ErrOversized):
			return err
		case errors.Is(err, broker.ErrRefused) && len(t.items) == 1:
			if err := s.parkOrHalt(ctx, t, err); err != nil {
				return err
			}
		case errors.Is(err, broker.ErrRefused), errors.Is(err, errSuspect):
			s.lane.publisher.metrics.splits.Inc()
			halves, err := s.halves(ctx, t.loadedBatch)
			if err != nil {
				return err
			}
			parts := make([]*part, len(halves))
			for i, half := range halves {
				parts[i] = &part{loadedBatch: half}
			}
			s.pending[session] = append(parts, s.pending[session][1:]...)
			continue
		case ctx.Err() != nil:
			return context.Cause(ctx)
		default:
			s.lastError = err
			return nil
		}
		s.pending[session] = s.pending[session][1:]
	}
	return nil
}

// sendOnce sends a part once. Errors: [broker.ErrRefused] if the single message is permanently
// refused, or if a part with several messages may contain such a message (then possibly
// errSuspect); errNoProof; [broker.ErrOversized]. After any other error the part must be sent
// again.
func (s *isolator) sendOnce(ctx context.Context, t *part) error {
	p := s.lane.publisher
	begun := time.Now()
	err := p.withFence(ctx, func(ctx context.Context) error { return s.lane.attempt(ctx, t.loadedBatch, p.broker.SendIsolated) })
	if err == nil {
		p.metrics.acknowledged(len(t.items), time.Since(begun))
		return nil
	}
	now, taken := time.Now(), p.acknowledgements.Load()
	t.history.record(err, taken, now)
	switch {
	case errors.Is(err, broker.ErrRefused) && (len(t.items) > 1 || p.config.Refusals == nil), errors.Is(err, broker.ErrOversized), ctx.Err() != nil:
		return err
	case len(t.items) > 1 && t.history.shouldSplit(taken):
		return fmt.Errorf("%w: %w", errSuspect, err)
	case len(t.items) > 1:
		return err
	}
	why := fmt.Errorf("send the %s alone: %w", describe(t.items[0]), err)
	if t.history.isPoison(now, p.config.RefusedAfter) {
		denied := p.allowPark(t.items[0], &t.history, why)
		switch {
		case denied != nil:
			return fmt.Errorf("%w: %v", denied, why) //nolint:errorlint // it is not refused yet
		case t.history.rejected:
			return err
		}
		return fmt.Errorf("%w: %d times since %s, while others were accepted: %w",
			broker.ErrRefused, t.history.objections, t.history.firstObjection.UTC().Format(time.RFC3339), err)
	}
	if t.history.isSuspect() {
		s.resendProbe(ctx, t)
	}
	if errors.Is(err, broker.ErrRefused) {
		if !s.progressing() {
			return fmt.Errorf("%w: %w", errNoProof, why)
		}
		return fmt.Errorf("not accepted yet: %v", why) //nolint:errorlint // it is not refused yet
	}
	return why
}

// errNoProof reports a message that is not parked, because Service Bus may be refusing all
// messages.
var errNoProof = errors.New("nothing else is accepted either, so it is not parked (ON_REFUSED=park): check whether the entity accepts messages")

// progressing reports whether Service Bus accepted anything within half of StallAfter, or the
// isolation is younger than that.
func (s *isolator) progressing() bool {
	p := s.lane.publisher
	if taken := p.acknowledgements.Load(); s.lastProgress.since.IsZero() || taken != s.lastProgress.acknowledgements {
		s.lastProgress.acknowledgements, s.lastProgress.since = taken, time.Now()
	}
	return p.config.StallAfter == 0 || time.Since(s.lastProgress.since) < p.config.StallAfter/2
}

// halves returns the two halves of a batch, in order. A batch with several sessions is split
// between sessions. One message with several events becomes messages of one event.
func (s *isolator) halves(ctx context.Context, b loadedBatch) ([]loadedBatch, error) {
	if b.count() == 1 {
		return s.lane.unpack(ctx, b)
	}
	of := len(b.sessions) / 2
	if of == 0 {
		first, rest, err := b.cut(b.count() / 2)
		return []loadedBatch{first, rest}, err
	}
	n := 0 // the messages of the first sessions
	for at := 0; b.items[at].session != b.sessions[of].session; n++ {
		at += b.events[n]
	}
	first, rest, err := b.cut(n)
	first.sessions, rest.sessions = b.sessions[:of], b.sessions[of:]
	return []loadedBatch{first, rest}, err
}

// split sends the two halves of a batch in order.
func (s *isolator) split(ctx context.Context, b loadedBatch) error {
	s.lane.publisher.metrics.splits.Inc()
	s.wasSplit = true
	halves, err := s.halves(ctx, b)
	for _, half := range halves {
		if err == nil {
			err = s.sendOrSplit(ctx, half)
		}
	}
	return err
}
