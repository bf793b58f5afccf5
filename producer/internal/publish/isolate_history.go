package publish

import (
	"errors"
	"time"

	"github.com/sluice-cdc/sluice/producer/internal/broker"
)

// errSuspect is a batch that keeps failing: it is sent apart from all others, to learn whether it is to blame.
var errSuspect = errors.New("batch keeps failing")

// failureHistory is the evidence against a batch, or a part of one: failed attempts in a row. It is pure state of one goroutine.
type failureHistory struct {
	objections     int       // attempts for which the broker gave a reason that may be the batch
	failures       int       // attempts of unknown outcome, objections included
	acksAtFirst    int64     // batches that were acknowledged when the first attempt failed
	firstObjection time.Time // the first objection
	permanent      bool      // the last objection had a condition that does not pass
	rejected       bool      // the message itself was rejected with such a condition
	proof          proof     // that Service Bus takes other messages meanwhile
}

// proof is where another message comes from that Service Bus has taken since a message failed first.
type proof int

const (
	noProof      proof = iota
	otherSession       // another session: the session of the message may be what is refused, for a partition that is away
	sameSession        // the session of the message
)

const (
	// objectionsToIsolate is how many objections make a batch suspect. One ends the sends of every lane that shares the connection.
	objectionsToIsolate = 3
	// failuresToIsolate is how many failures do, if other batches passed meanwhile: then it is not the network.
	failuresToIsolate = 5
	// objectionsToRefuse is how many objections to one message, sent apart, are the least for a refusal for good.
	objectionsToRefuse = 5
)

// record takes the outcome of an attempt, and the number of batches that were acknowledged by then.
func (s *failureHistory) record(err error, acknowledged int64, now time.Time) {
	rejected := errors.Is(err, broker.ErrRefused)
	if !rejected && !errors.Is(err, broker.ErrUnknown) && !errors.Is(err, broker.ErrTimedOut) {
		return // it was not sent, or the answer is plain
	}
	if s.failures == 0 {
		s.acksAtFirst = acknowledged
	}
	s.failures++
	s.rejected = rejected
	if rejected || errors.Is(err, broker.ErrObjection) {
		if s.objections == 0 {
			s.firstObjection = now
		}
		s.objections++
		s.permanent = errors.Is(err, broker.ErrPermanentObjection)
	}
}

// reset forgets all that speaks against a message: the one that its session sent before it is objected to as well.
func (s *failureHistory) reset() { *s = failureHistory{} }

// shouldIsolate reports whether the batch is to be sent apart from others.
func (s *failureHistory) shouldIsolate(acknowledged int64) bool {
	return s.objections >= objectionsToIsolate || s.failures >= failuresToIsolate && acknowledged > s.acksAtFirst
}

// shouldSplit reports whether several messages, sent apart, are to be sent in parts.
func (s *failureHistory) shouldSplit(acknowledged int64) bool {
	return s.objections > 0 || s.failures >= failuresToIsolate && acknowledged > s.acksAtFirst
}

// isSuspect reports whether enough speaks against a single message, sent apart, to ask for a proof that others are taken.
func (s *failureHistory) isSuspect() bool { return s.rejected || s.objections >= objectionsToRefuse }

// isPoison reports whether a single message, sent apart, is to blame. A condition that may pass has to last for after.
func (s *failureHistory) isPoison(now time.Time, after time.Duration) bool {
	switch {
	case s.proof == noProof || !s.isSuspect():
		return false
	case s.rejected || s.permanent:
		return true
	}
	return now.Sub(s.firstObjection) >= after
}
