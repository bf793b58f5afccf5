// Package broker sends batches of messages to one topic or queue of Service Bus over AMQP.
//
// Guaranteed: [Broker.Send] returns nil only if Service Bus accepted the batch, and [ErrRefused] or
// [ErrOversized] only if it stored nothing of the batch. After any other error the outcome is
// unknown.
//
// Not guaranteed: that a batch is stored once. Package publish decides what to send again, and in
// which order.
package broker

import (
	"context"
	"errors"
	"fmt"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

// These errors stop the stream, because skipping the event would silently lose it.
var (
	// ErrOversized reports an event whose message is larger than the entity accepts.
	ErrOversized = errors.New("event is too large for Service Bus")
	// ErrRefused reports a batch that Service Bus permanently refuses. Nothing of it was stored. To
	// find the message that causes the refusal, the messages must be sent in smaller batches.
	ErrRefused = errors.New("permanently refused by Service Bus")
)

// ErrFull means that a message does not fit into a batch that already has others.
var ErrFull = errors.New("batch is full")

// ErrBusy reports a send that the broker refused temporarily, because it throttles or the entity is
// full. The batch was not stored. The broker responds, so another process would do no better.
var ErrBusy = errors.New("send, or its link, is refused because Service Bus is busy")

// ErrUnknown reports a send whose outcome is unknown because the connection failed: the batch may
// have been stored.
var ErrUnknown = errors.New("outcome of the send is unknown")

// ErrObjection is an [ErrUnknown] with a reason given by the broker: it rejected the batch for a
// reason that may be temporary, or it closed the link, the session or the connection. On a
// connection that lanes share, the reason may concern the batch of another lane.
var ErrObjection = errors.New("objection of Service Bus")

// ErrPermanentObjection is an [ErrObjection] whose condition concerns the content sent and is not
// temporary.
var ErrPermanentObjection = fmt.Errorf("%w to the content", ErrObjection)

// ErrTimedOut reports a send that timed out in the broker: the batch may have been stored.
var ErrTimedOut = errors.New("send timed out in Service Bus")

// Broker sends batches. [ServiceBus] implements it.
type Broker interface {
	// NewBatch returns an empty batch.
	NewBatch(ctx context.Context) (Batch, error)
	// Send sends a batch of at least one message, all or nothing. It returns nil if the batch was
	// acknowledged. After any error except [ErrRefused] and [ErrOversized] the batch may have been
	// stored: the caller must send the same batch again before any later message of its sessions.
	Send(ctx context.Context, b Batch) error
	// SendIsolated is Send over a connection that nothing else uses meanwhile, so that the broker's
	// errors there concern this batch.
	SendIsolated(ctx context.Context, b Batch) error
}

// Batch is the content of one send.
type Batch interface {
	// Add appends a message. It returns [ErrFull] if the message does not fit behind the others,
	// and [ErrOversized] if it does not fit into an empty batch.
	Add(m *azservicebus.Message) error
	// MaxMessageBytes returns the size limit of a message, or 0 if the entity states none.
	MaxMessageBytes() uint64
	// AddUnbatched makes the batch a single message that is sent without the batch format, because
	// it is too large even for an empty batch. If it is too large for the entity as well, Send
	// returns [ErrOversized].
	AddUnbatched(m *azservicebus.Message)
	// Split returns the first n messages and the rest, each as a batch. It requires 0 < n < the
	// number of messages.
	Split(n int) (first, rest Batch, err error)
	// Extract returns the n-th message (from 0) as a batch, and its size in bytes. It returns nil
	// for a message that was added with AddUnbatched.
	Extract(n int) (one Batch, size int)
	// Content returns the content of a batch of one message, as it is sent.
	Content() (contentType string, body []byte, err error)
}
