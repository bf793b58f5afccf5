// Package inspect is how people look at a projector from outside: what waits and what is applied, and what keeps it from
// running.
//
// Guaranteed: nothing that is looked at changes. The doctor's one write is in a transaction that is aborted, its one session
// is empty and given back, and what it makes of collections and indexes a projector makes at its start.
package inspect

import (
	"context"
	"fmt"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/sluice-cdc/sluice/projector/internal/apply"
	"github.com/sluice-cdc/sluice/projector/projection"
)

// Desk is one projection and the services it lives on.
type Desk struct {
	Projection projection.Projection
	Applier    *apply.Applier
	Database   *mongo.Database
	Bus        *azservicebus.Client
	// Topic and Subscription, or Queue.
	Topic, Subscription, Queue string
	// LocalAuth: Service Bus is reached by a connection string, not by an identity.
	LocalAuth bool
	// Timeout bounds one request; zero means ten seconds.
	Timeout time.Duration
}

func (d *Desk) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	timeout := d.Timeout
	if timeout == 0 {
		timeout = 10 * time.Second
	}
	return context.WithTimeout(ctx, timeout)
}

// entity is the path of what is received from.
func (d *Desk) entity() string {
	if d.Queue != "" {
		return d.Queue
	}
	return d.Topic + "/" + d.Subscription
}

func (d *Desk) receiver(options *azservicebus.ReceiverOptions) (*azservicebus.Receiver, error) {
	if d.Queue != "" {
		return d.Bus.NewReceiverForQueue(d.Queue, options)
	}
	return d.Bus.NewReceiverForSubscription(d.Topic, d.Subscription, options)
}

func (d *Desk) session(ctx context.Context, id string) (*azservicebus.SessionReceiver, error) {
	if d.Queue != "" {
		return d.Bus.AcceptSessionForQueue(ctx, d.Queue, id, nil)
	}
	return d.Bus.AcceptSessionForSubscription(ctx, d.Topic, d.Subscription, id, nil)
}

// peek looks at messages without taking them; each gets those of one page. It ends after at most most messages.
func (d *Desk) peek(ctx context.Context, options *azservicebus.ReceiverOptions, most int, each func([]*azservicebus.ReceivedMessage)) error {
	receiver, err := d.receiver(options)
	if err != nil {
		return fmt.Errorf("open receiver: %w", err)
	}
	defer func() {
		ctx, cancel := d.bounded(context.WithoutCancel(ctx))
		defer cancel()
		_ = receiver.Close(ctx) // it took nothing
	}()
	const page = 250
	for seen := 0; seen < most; {
		messages, err := receiver.PeekMessages(ctx, min(page, most-seen), nil)
		if err != nil {
			return fmt.Errorf("peek at %s: %w", d.entity(), err)
		}
		if len(messages) == 0 {
			return nil
		}
		each(messages)
		seen += len(messages)
	}
	return nil
}
