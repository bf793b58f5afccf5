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
	"github.com/sluice-cdc/sluice/shared/azure"
)

// Desk is one projection and the services it lives on.
type Desk struct {
	Projection projection.Projection
	Applier    *apply.Applier
	Database   *mongo.Database
	Bus        *azservicebus.Client
	// Entity is what the projector receives from.
	Entity azure.Entity
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

// peek looks at messages without taking them; each gets those of one page. It ends after at most most messages.
func (d *Desk) peek(ctx context.Context, options *azservicebus.ReceiverOptions, most int, each func([]*azservicebus.ReceivedMessage)) error {
	receiver, err := d.Entity.Receiver(d.Bus, options)
	if err != nil {
		return err
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
			return fmt.Errorf("peek at %s: %w", d.Entity, err)
		}
		if len(messages) == 0 {
			return nil
		}
		each(messages)
		seen += len(messages)
	}
	return nil
}
