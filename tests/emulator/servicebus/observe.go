package servicebus

import (
	"time"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/amqp"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/broker"
)

// Accepted describes to an observer a message that was sent.
type Accepted struct {
	Entity     string // the queue or topic
	MessageID  string
	SessionID  string
	EnqueuedAt time.Time
	// Properties are the application properties; nil if they are absent or malformed.
	Properties map[string]any
	Size       int // of the encoded message, in bytes
	// Encoded is the AMQP message as the broker keeps it. It must not be changed.
	Encoded []byte
	// Duplicate is true when duplicate detection dropped the message.
	Duplicate bool
}

// Observe sets a function that is called once per message a send brings, in the order the
// entity accepted them, duplicates included. It runs inside the send: it must be quick and must
// not call the server. nil removes it.
func (s *Server) Observe(f func(Accepted)) {
	if f == nil {
		s.broker.Observe(nil)
		return
	}
	s.broker.Observe(func(a broker.Accepted) {
		out := Accepted{
			Entity: a.Entity, MessageID: a.MessageID, SessionID: a.SessionID,
			EnqueuedAt: a.EnqueuedAt, Duplicate: a.Duplicate,
			Size: len(a.Body), Encoded: a.Body,
		}
		out.readProperties(a.Body)
		f(out)
	})
}

func (a *Accepted) readProperties(body []byte) {
	if m, err := amqp.ParseMessage(body); err == nil {
		if props, err := m.ApplicationProperties(); err == nil {
			a.Properties = props
		}
	}
}
