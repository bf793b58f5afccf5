package publish

import "errors"

// errSuspect is a batch that keeps failing: it is sent apart from all others, to learn whether it is to blame.
var errSuspect = errors.New("batch keeps failing")

// suspicion is what speaks against a batch, or a part of one: failed attempts in a row. It is pure state of one goroutine.
type suspicion struct {
	objections int   // of them, those for which the broker gave a reason that may be the batch
	failures   int   // of unknown outcome, objections included
	passed     int64 // batches that were acknowledged when the first attempt failed
}

const (
	// objectionsApart is how many objections make a batch suspect. One ends the sends of every lane that shares the connection.
	objectionsApart = 3
	// failuresApart is how many failures do, where other batches passed meanwhile: then it is not the network.
	failuresApart = 5
	// objectionsForGood is how many objections to one message, sent apart, are a refusal for good, where other batches passed meanwhile.
	objectionsForGood = 5
)

// add takes the outcome of an attempt, and the number of batches that were acknowledged by then.
func (s *suspicion) add(err error, acknowledged int64) {
	if !errors.Is(err, errUnknown) && !errors.Is(err, errCutShort) {
		return // it was not sent, or the answer is plain
	}
	if s.failures == 0 {
		s.passed = acknowledged
	}
	s.failures++
	if errors.Is(err, errObjection) {
		s.objections++
	}
}

// apart says that the batch is to be sent apart from others.
func (s *suspicion) apart(acknowledged int64) bool {
	return s.objections >= objectionsApart || s.failures >= failuresApart && acknowledged > s.passed
}

// divides says that several messages, sent apart, are to be sent in parts.
func (s *suspicion) divides(acknowledged int64) bool {
	return s.objections > 0 || s.failures >= failuresApart && acknowledged > s.passed
}

// convicts says that a single message, sent apart, is to blame.
func (s *suspicion) convicts(acknowledged int64) bool {
	return s.objections >= objectionsForGood && acknowledged > s.passed
}
