package publish

import (
	"errors"
	"time"

	"github.com/sluice-cdc/sluice/producer/internal/broker"
)

// errSuspect reports a batch that keeps failing. It is sent on a connection of its own to find out
// whether it is the cause.
var errSuspect = errors.New("batch keeps failing")

// failureHistory counts the consecutive failed attempts to send a batch or a part of one. It is
// pure state of one goroutine.
type failureHistory struct {
	objections     int       // attempts for which the broker gave a reason that may concern the batch
	failures       int       // attempts of unknown outcome, including objections
	acksAtFirst    int64     // batches acknowledged when the first attempt failed
	firstObjection time.Time // the time of the first objection
	permanent      bool      // the last objection had a permanent condition
	rejected       bool      // the message itself was rejected with a permanent condition
	proof          proof     // that Service Bus accepts other messages meanwhile
}

// proof is the origin of another message that Service Bus accepted since the first failure.
type proof int

const (
	noProof      proof = iota
	otherSession       // another session: the refusal may concern the whole session, if its partition is unavailable
	sameSession        // the session of the message
)

const (
	// objectionsToIsolate is how many objections make a batch suspect. Each objection ends the
	// sends of every lane that shares the connection.
	objectionsToIsolate = 3
	// failuresToIsolate is how many failures make a batch suspect if other batches were
	// acknowledged meanwhile, so that the network is not the cause.
	failuresToIsolate = 5
	// objectionsToRefuse is the minimum number of objections to a single isolated message before it
	// counts as permanently refused.
	objectionsToRefuse = 5
)

// record records the outcome of an attempt. acknowledged is the number of batches acknowledged so
// far.
func (s *failureHistory) record(err error, acknowledged int64, now time.Time) {
	rejected := errors.Is(err, broker.ErrRefused)
	if !rejected && !errors.Is(err, broker.ErrUnknown) && !errors.Is(err, broker.ErrTimedOut) {
		return // it was not sent, or the outcome is known
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

// shouldIsolate reports whether the batch must be sent on a connection of its own.
func (s *failureHistory) shouldIsolate(acknowledged int64) bool {
	return s.objections >= objectionsToIsolate || s.failures >= failuresToIsolate && acknowledged > s.acksAtFirst
}

// shouldSplit reports whether a part with several messages must be split.
func (s *failureHistory) shouldSplit(acknowledged int64) bool {
	return s.objections > 0 || s.failures >= failuresToIsolate && acknowledged > s.acksAtFirst
}

// isSuspect reports whether there is enough evidence against a single message to request proof that
// others are accepted.
func (s *failureHistory) isSuspect() bool { return s.rejected || s.objections >= objectionsToRefuse }

// isPoison reports whether a single message is permanently refused. A condition that may be
// temporary must last for after.
func (s *failureHistory) isPoison(now time.Time, after time.Duration) bool {
	switch {
	case s.proof == noProof || !s.isSuspect():
		return false
	case s.rejected || s.permanent:
		return true
	}
	return now.Sub(s.firstObjection) >= after
}
