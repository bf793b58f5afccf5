package sessions

import (
	"context"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

// Settler settles messages with the broker.
type Settler interface {
	CompleteMessage(ctx context.Context, m *azservicebus.ReceivedMessage, o *azservicebus.CompleteMessageOptions) error
	DeadLetterMessage(ctx context.Context, m *azservicebus.ReceivedMessage, o *azservicebus.DeadLetterOptions) error
}

// link is an accepted session, over AMQP or through the SDK.
type link interface {
	Settler
	ID() string
	// LockedUntil returns when the lock ends unless it is renewed, by the broker's clock. It is
	// called once, before the first renewal.
	LockedUntil() time.Time
	Renew(ctx context.Context) error
	Close(ctx context.Context) error

	// Buffered returns messages, in order, that have arrived and that no other method has returned,
	// at most count, without requesting more.
	Buffered(count int) []*azservicebus.ReceivedMessage
	// TryNext returns messages, in order, that are known to have arrived or to be on their way, at
	// most count; none if none are known. Errors: [ErrRelease] if the link is no longer usable.
	TryNext(ctx context.Context, count int) ([]*azservicebus.ReceivedMessage, error)
	// Next waits for messages: at least one, at most count, in order. Errors: [ErrRelease].
	Next(ctx context.Context, count int) ([]*azservicebus.ReceivedMessage, error)
}

// acceptor accepts sessions for workers, which share it.
type acceptor interface {
	// accept waits for a session until ctx ends, or shortly before. release releases what the
	// session's link was opened on, after the link has been closed. Errors: errNoSession.
	accept(ctx context.Context) (l link, release func(ctx context.Context), err error)
	close(ctx context.Context)
}

// expectedWithin is how long to wait for messages that are known to be there: for the first, and
// from it to the last. It passes only if one of them expired.
const expectedWithin = 2 * time.Second
