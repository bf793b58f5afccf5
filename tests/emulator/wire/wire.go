// Package wire reads recorded AMQP frames, for tests that compare what clients send to a broker.
package wire

import "github.com/sluice-cdc/sluice/tests/emulator/internal/amqp"

// What frames and sections hold.
type (
	// Frame is a performative with its fields by their names.
	Frame = amqp.Inspected
	// Described is a described value, such as a section of a message.
	Described = amqp.Described
	// UUID is an AMQP uuid.
	UUID = amqp.UUID
)

// Frames returns the frames of one direction of a connection. It fails where b is no whole frames.
func Frames(b []byte) ([]Frame, error) { return amqp.Inspect(b) }

// Sections returns the sections of an encoded message, or an error if b is not a message.
func Sections(b []byte) ([]Described, error) { return amqp.InspectMessage(b) }

// StringMap returns v as a map with strings or symbols as keys, or nil.
func StringMap(v any) map[string]any { return amqp.StringMap(v) }
