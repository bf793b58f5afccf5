package servicebus

import "github.com/Azure/go-amqp"

// The conditions that Service Bus answers with, beside AMQP's own.
const (
	CondServerBusy            amqp.ErrCond = "com.microsoft:server-busy"
	CondTimeout               amqp.ErrCond = "com.microsoft:timeout"
	CondOperationCancelled    amqp.ErrCond = "com.microsoft:operation-cancelled"
	CondArgumentError         amqp.ErrCond = "com.microsoft:argument-error"
	CondArgumentOutOfRange    amqp.ErrCond = "com.microsoft:argument-out-of-range"
	CondSessionCannotBeLocked amqp.ErrCond = "com.microsoft:session-cannot-be-locked" // another receiver holds it
	CondSessionLockLost       amqp.ErrCond = "com.microsoft:session-lock-lost"
	// CondDeadLetter is said to the broker: a message rejected with it is dead-lettered with a reason.
	CondDeadLetter amqp.ErrCond = "com.microsoft:dead-letter"
)

// NotUnderstood says that the broker refused a request for what it is, so that repeating it cannot help. It is not for
// refusals for want of a right, of the entity, or of room.
func NotUnderstood(condition amqp.ErrCond) bool {
	switch condition {
	case amqp.ErrCondNotImplemented, amqp.ErrCondInvalidField, amqp.ErrCondDecodeError, amqp.ErrCondNotAllowed,
		CondArgumentError, CondArgumentOutOfRange:
		return true
	}
	return false
}
