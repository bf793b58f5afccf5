// Package broker sends batches of messages to one topic or queue of Service Bus over AMQP.
//
// Guaranteed: [Broker.Send] returns nil only if Service Bus accepted the batch, and [ErrRefused] or
// [ErrOversized] only if it stored nothing of it. After any other error the outcome is unknown.
//
// Not guaranteed: that a batch is stored once. What to send again, and in which order, is decided by
// package publish.
package broker

import (
	"context"
	"errors"
	"fmt"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

// These errors stop the stream: skipping the event would lose it silently.
var (
	// ErrOversized is an event that Service Bus cannot take, because its message is larger than the entity's may be.
	ErrOversized = errors.New("event is too large for Service Bus")
	// ErrRefused is a batch that Service Bus will refuse however often it is sent. Nothing of it was stored. Which of its messages it
	// is about is found by sending them apart.
	ErrRefused = errors.New("refused by Service Bus for good")
)

// ErrFull means that a message does not fit behind those that are in the batch already.
var ErrFull = errors.New("batch is full")

// ErrBusy is a send that the broker refused for now: it throttles, or the entity is full. The batch was not stored. The broker
// answers, so another process would do no better.
var ErrBusy = errors.New("send is refused because Service Bus is busy")

// ErrUnknown is a send whose outcome is unknown, because the connection failed: it may have been stored.
var ErrUnknown = errors.New("outcome of the send is unknown")

// ErrObjection is an errUnknown of which the broker says why: it rejected the batch for a reason that may pass, or ended the link, the
// session or the connection. On a connection that lanes share, it may be about another lane's batch.
var ErrObjection = errors.New("objected to by Service Bus")

// ErrPermanentObjection is an errObjection with a condition that is about what was sent, and does not pass.
var ErrPermanentObjection = fmt.Errorf("%w for what was sent", ErrObjection)

// ErrTimedOut is a send that timed out in the broker: it may have been stored.
var ErrTimedOut = errors.New("send timed out in Service Bus")

// Broker is where batches go: [ServiceBus].
type Broker interface {
	// NewBatch begins an empty batch.
	NewBatch(ctx context.Context) (Batch, error)
	// Send sends a batch of at least one message, all or nothing. nil means acknowledged. After any error but [ErrRefused] and
	// [ErrOversized] the batch may have been stored or not: the same batch must be sent again before anything later of its sessions.
	Send(ctx context.Context, b Batch) error
	// SendIsolated is Send on a connection on which nothing else is sent meanwhile: what the broker says there is about this batch.
	SendIsolated(ctx context.Context, b Batch) error
}

// Batch is what one send carries.
type Batch interface {
	// Add appends a message: errFull when it does not fit behind the others, [ErrOversized] when the batch is empty and
	// has no room for it.
	Add(m *azservicebus.Message) error
	// MaxMessageBytes is the most bytes that the entity takes in a message; 0: it states none.
	MaxMessageBytes() uint64
	// AddUnbatched sends one message without a batch, because it is too large even for an empty one. If it is too large for the
	// entity as well, Send returns [ErrOversized].
	AddUnbatched(m *azservicebus.Message)
	// Split gives the first n messages and the rest, each as a batch; 0 < n < the number of messages.
	Split(n int) (first, rest Batch, err error)
	// Extract returns the n-th message, from 0, as a batch, and the bytes that it holds on to. A message that was added with AddAlone has
	// none.
	Extract(n int) (one Batch, size int)
	// Content is the content of a batch of one message, as it is sent.
	Content() (contentType string, body []byte, err error)
}
