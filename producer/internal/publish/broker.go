package publish

import (
	"context"
	"errors"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

// What ends the stream: leaving the event out would lose it silently.
var (
	// ErrOversized is an event that Service Bus cannot take, because its message is larger than the entity's may be.
	ErrOversized = errors.New("event is too large for Service Bus")
	// ErrRefused is a batch that Service Bus will refuse however often it is sent: nothing of it was stored.
	ErrRefused = errors.New("batch is refused by Service Bus for good")
)

// errFull means that a message does not fit behind those that are in the batch already.
var errFull = errors.New("batch is full")

// errBusy is a send that the broker refused for now: throttled, or the entity is full. It was not stored, and the broker
// is well enough to say so: another process would fare no better.
var errBusy = errors.New("send is refused by a busy Service Bus")

// errUnknown is a send of which nothing is known, because the connection failed: it may have been stored.
var errUnknown = errors.New("nothing is known of the send")

// errCutShort is a send that the broker began and did not finish in its time: it may have been stored.
var errCutShort = errors.New("send was not finished by Service Bus")

// Broker is where batches go: [ServiceBus].
type Broker interface {
	// NewBatch begins an empty batch.
	NewBatch(ctx context.Context) (Batch, error)
	// Send sends a batch of at least one message, all or nothing. nil means acknowledged. After an error other than
	// [ErrRefused] and [ErrOversized] the batch may or may not have been stored: the same batch must be sent again before anything later of
	// its sessions.
	Send(ctx context.Context, b Batch) error
}

// Batch is what one send carries.
type Batch interface {
	// Add appends a message: errFull when it does not fit behind the others, [ErrOversized] when the batch is empty and
	// has no room for it.
	Add(m *azservicebus.Message) error
	// AddAlone makes a message that an empty batch has no room for all that is sent. Whether the entity takes one so large,
	// Send will tell: [ErrOversized].
	AddAlone(m *azservicebus.Message)
}
