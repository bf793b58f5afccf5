package servicebus

import (
	"slices"
	"sync/atomic"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/amqp"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/broker"
)

// Outcome is a delivery state of AMQP, by its descriptor.
type Outcome = amqp.Outcome

// The outcomes of a send that is not stored.
const (
	Rejected Outcome = amqp.Rejected
	Released Outcome = amqp.Released
	Modified Outcome = amqp.Modified
)

// Answer is the outcome of a send that is not stored.
type Answer struct {
	// Outcome is Released, Modified, or Rejected with Condition.
	Outcome Outcome
	// Detach ends the link with Condition instead of answering: other sends in flight on the link
	// get no answer.
	Detach    bool
	Condition string
}

// answered is an Answer and how often it is still to be given.
type answered struct {
	Answer
	left atomic.Int64
}

// AnswerSends gives an answer to the next n sends instead of storing them; 0 ends that.
func (s *Server) AnswerSends(n int, a Answer) {
	next := &answered{Answer: a}
	next.left.Store(int64(n))
	s.answer.Store(next)
}

// singled is an Answer to whatever holds a message that it is about.
type singled struct {
	Answer
	about func(Accepted) bool
}

// AnswerSendsOf gives an answer, until end is called, to every send that holds a message that it is
// about, instead of storing it: a batch is taken as a whole or not at all. about is called for each
// message that is sent, must be quick and must not call the server. Several add up: the first that
// is about a message of the batch decides.
func (s *Server) AnswerSendsOf(about func(Accepted) bool, a Answer) (end func()) {
	x := &singled{a, about}
	s.editSingled(func(all []*singled) []*singled { return append(all, x) })
	return func() {
		s.editSingled(func(all []*singled) []*singled {
			return slices.DeleteFunc(all, func(y *singled) bool { return x == y })
		})
	}
}

// editSingled replaces the list, which those who send read without a lock.
func (s *Server) editSingled(f func([]*singled) []*singled) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var now []*singled
	if p := s.single.Load(); p != nil {
		now = slices.Clone(*p)
	}
	now = f(now)
	s.single.Store(&now)
}

// unstored returns the answer to the current send; nil: it is to be stored.
func (s *Server) unstored(entity string, batch []*broker.Payload) *Answer {
	if a := s.answer.Load(); a != nil && a.left.Add(-1) >= 0 {
		return &a.Answer
	}
	all := s.single.Load()
	if all == nil {
		return nil
	}
	for _, a := range *all {
		if slices.ContainsFunc(batch, func(p *broker.Payload) bool { return a.about(seen(entity, p)) }) {
			return &a.Answer
		}
	}
	return nil
}

// seen returns a message that has not been accepted, as an observer would see it.
func seen(entity string, p *broker.Payload) Accepted {
	a := Accepted{Entity: entity, MessageID: p.MessageID, SessionID: p.SessionID, Size: len(p.Body), Encoded: p.Body}
	a.readProperties(p.Body)
	return a
}

// give gives an answer to a send.
func (s *senderLink) give(a *Answer, id uint32) {
	why := &amqp.Error{Condition: amqp.Symbol(a.Condition), Description: "set by the test"}
	switch {
	case a.Detach:
		s.link.Detach(why)
	case a.Outcome == amqp.Rejected:
		s.link.Dispose(id, amqp.State{Outcome: amqp.Rejected, Err: why})
	default:
		s.link.Dispose(id, amqp.State{Outcome: a.Outcome})
	}
}
