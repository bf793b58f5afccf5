package publish

import (
	"context"
	"errors"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

// ErrOversized is an event that Service Bus cannot take, because its message alone is larger than a batch may be. It
// stops the stream: leaving it out would lose it silently.
var ErrOversized = errors.New("event is too large for Service Bus")

// errFull means that a message does not fit behind those that are in the batch already.
var errFull = errors.New("batch is full")

// Broker is where batches go: [ServiceBus].
type Broker interface {
	// NewBatch begins an empty batch.
	NewBatch(ctx context.Context) (Batch, error)
	// Send sends a batch of at least one message, all or nothing. nil means acknowledged. After an error the batch may
	// or may not have been stored: the same batch must be sent again before anything later of its sessions.
	Send(ctx context.Context, b Batch) error
}

// Batch is what one send carries.
type Batch interface {
	// Add appends a message: errFull when it does not fit behind the others, [ErrOversized] when it does not fit alone.
	Add(m *azservicebus.Message) error
}
