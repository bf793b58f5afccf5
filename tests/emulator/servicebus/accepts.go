package servicebus

import "github.com/sluice-cdc/sluice/tests/emulator/internal/amqp"

// AcceptAnswer is how the server answers those who ask for the next session of an entity.
type AcceptAnswer int32

// The answers.
const (
	AnswerAsUsual AcceptAnswer = iota
	// AnswerNothing leaves the attach open, whatever timeout it has.
	AnswerNothing
	// AnswerBare gives a granted session's id without the descriptor that was asked with, which
	// some clients cannot read.
	AnswerBare
	// AnswerNoReason detaches without an error if there is no session, as the service sometimes
	// does.
	AnswerNoReason
)

// AnswerAccepts sets how those are answered who ask for a session from now on.
func (s *Server) AnswerAccepts(a AcceptAnswer) { s.accepts.Store(int32(a)) }

func (s *Server) answersAccepts(a AcceptAnswer) bool { return s.accepts.Load() == int32(a) }

// bare returns a source of the same address with a filter whose value has no descriptor.
func bare(source *amqp.Terminus, name amqp.Symbol, value any) *amqp.Terminus {
	address := &amqp.Terminus{Descriptor: source.Descriptor, Fields: source.Fields[:1]}
	return address.WithFilter(name, value)
}
