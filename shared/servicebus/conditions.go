package servicebus

import "github.com/Azure/go-amqp"

// The conditions of Service Bus, besides AMQP's own.
const (
	CondServerBusy            amqp.ErrCond = "com.microsoft:server-busy"
	CondTimeout               amqp.ErrCond = "com.microsoft:timeout"
	CondOperationCancelled    amqp.ErrCond = "com.microsoft:operation-cancelled"
	CondArgumentError         amqp.ErrCond = "com.microsoft:argument-error"
	CondArgumentOutOfRange    amqp.ErrCond = "com.microsoft:argument-out-of-range"
	CondSessionCannotBeLocked amqp.ErrCond = "com.microsoft:session-cannot-be-locked" // another receiver holds it
	CondSessionLockLost       amqp.ErrCond = "com.microsoft:session-lock-lost"
	// CondDeadLetter is for the broker: a message that is rejected with it is dead-lettered with a
	// reason.
	CondDeadLetter amqp.ErrCond = "com.microsoft:dead-letter"
)

// NotUnderstood reports that the broker refused the request itself, so that a retry cannot help. It
// is false if a permission, the entity or room is missing.
func NotUnderstood(condition amqp.ErrCond) bool {
	switch condition {
	case amqp.ErrCondNotImplemented, amqp.ErrCondInvalidField, amqp.ErrCondDecodeError, amqp.ErrCondNotAllowed,
		CondArgumentError, CondArgumentOutOfRange:
		return true
	}
	return false
}
