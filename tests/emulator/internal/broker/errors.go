package broker

// Condition is the error condition a client sees.
type Condition string

// The conditions the service uses.
const (
	NotAllowed              Condition = "amqp:not-allowed"
	NotFound                Condition = "amqp:not-found"
	NotImplemented          Condition = "amqp:not-implemented"
	AlreadyExists           Condition = "com.microsoft:entity-already-exists"
	ArgumentOutOfRange      Condition = "com.microsoft:argument-out-of-range"
	ServerBusy              Condition = "com.microsoft:server-busy"
	Timeout                 Condition = "com.microsoft:timeout"
	MessageLockLost         Condition = "com.microsoft:message-lock-lost"
	SessionLockLost         Condition = "com.microsoft:session-lock-lost"
	SessionCannotBeLocked   Condition = "com.microsoft:session-cannot-be-locked"
	MessageNotFound         Condition = "com.microsoft:message-not-found"
	EntityDisabled          Condition = "com.microsoft:entity-disabled"
	descMessageLockLost               = "The lock supplied is invalid. Either the lock expired, or the message has already been removed from the queue."
	descSessionLockLost               = "The session lock has expired on the MessageSession. Accept a new MessageSession."
	descSessionNull                   = "The SessionId was not set on a message, and it cannot be sent to the entity. Entities that have session support enabled can only receive messages that have the SessionId set to a valid value."
	descSessionRequired               = "It is not possible for an entity that requires sessions to create a non-sessionful message receiver."
	descSessionNotRequired            = "A sessionful message receiver cannot be created on an entity that does not require sessions."
	descSessionPartitionKey           = "The value of SessionId and PartitionKey must be the same when both are set."
	descPartitionedBatch              = "Batching brokered messages with distinct SessionId, PartitionKey, or MessageId is not supported for an entity with partitioning and duplicate detection enabled."
	descEntityDisabled                = "The messaging entity is currently disabled."
	descServerBusy                    = "The request was terminated because the entity is being throttled. Error code : 50009. Please wait 2 seconds and try again."
	descAcceptTimeout                 = "The operation did not complete within the allotted timeout."
	descSubQueueSession               = "Cannot create a MessageSession for a sub-queue."
)

// Error is a refusal with the condition the service would use.
type Error struct {
	Condition   Condition
	Description string
}

// Error implements error.
func (e *Error) Error() string { return string(e.Condition) + ": " + e.Description }

func refuse(c Condition, description string) *Error {
	return &Error{Condition: c, Description: description}
}

// Reasons for which the broker itself dead-letters.
const (
	ReasonMaxDelivery = "MaxDeliveryCountExceeded"
	ReasonExpired     = "TTLExpiredException"
	ReasonNullSession = "Session id is null."
	ReasonFilterError = "FilterEvaluationException"
	ReasonHops        = "MaxTransferHopCountExceeded"
	ReasonTransfer    = "TransferFailed"
)
