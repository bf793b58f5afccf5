package publish

import (
	"errors"
	"time"

	"github.com/sluice-cdc/sluice/producer/internal/broker"
)

// errSuspect is a batch that keeps failing: it is sent apart from all others, to learn whether it is to blame.
var errSuspect = errors.New("batch keeps failing")

// suspicion is the evidence against a batch, or a part of one: failed attempts in a row. It is pure state of one goroutine.
type suspicion struct {
	objections int       // attempts for which the broker gave a reason that may be the batch
	failures   int       // attempts of unknown outcome, objections included
	passed     int64     // batches that were acknowledged when the first attempt failed
	since      time.Time // the first objection
	final      bool      // the last objection had a condition that does not pass
	rejected   bool      // the message itself was rejected with such a condition
	proof      proof     // that Service Bus takes other messages meanwhile
}

// proof is where another message comes from that Service Bus has taken since a message failed first.
type proof int

const (
	noProof      proof = iota
	otherSession       // another session: the session of the message may be what is refused, for a partition that is away
	sameSession        // the session of the message
)

const (
	// objectionsApart is how many objections make a batch suspect. One ends the sends of every lane that shares the connection.
	objectionsApart = 3
	// failuresApart is how many failures do, if other batches passed meanwhile: then it is not the network.
	failuresApart = 5
	// objectionsForGood is how many objections to one message, sent apart, are the least for a refusal for good.
	objectionsForGood = 5
)

// add takes the outcome of an attempt, and the number of batches that were acknowledged by then.
func (s *suspicion) add(err error, acknowledged int64, now time.Time) {
	rejected := errors.Is(err, broker.ErrRefused)
	if !rejected && !errors.Is(err, broker.ErrUnknown) && !errors.Is(err, broker.ErrCutShort) {
		return // it was not sent, or the answer is plain
	}
	if s.failures == 0 {
		s.passed = acknowledged
	}
	s.failures++
	s.rejected = rejected
	if rejected || errors.Is(err, broker.ErrObjection) {
		if s.objections == 0 {
			s.since = now
		}
		s.objections++
		s.final = errors.Is(err, broker.ErrFinal)
	}
}

// acquit forgets all that speaks against a message: the one that its session sent before it is objected to as well.
func (s *suspicion) acquit() { *s = suspicion{} }

// apart reports whether the batch is to be sent apart from others.
func (s *suspicion) apart(acknowledged int64) bool {
	return s.objections >= objectionsApart || s.failures >= failuresApart && acknowledged > s.passed
}

// divides reports whether several messages, sent apart, are to be sent in parts.
func (s *suspicion) divides(acknowledged int64) bool {
	return s.objections > 0 || s.failures >= failuresApart && acknowledged > s.passed
}

// questions reports whether enough speaks against a single message, sent apart, to ask for a proof that others are taken.
func (s *suspicion) questions() bool { return s.rejected || s.objections >= objectionsForGood }

// convicts reports whether a single message, sent apart, is to blame. A condition that may pass has to last for after.
func (s *suspicion) convicts(now time.Time, after time.Duration) bool {
	switch {
	case s.proof == noProof || !s.questions():
		return false
	case s.rejected || s.final:
		return true
	}
	return now.Sub(s.since) >= after
}
