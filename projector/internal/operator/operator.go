// Package operator holds the operator's commands: show what waits and what is applied, replay or
// drop parked aggregates, compare the read model with its source, and find out what keeps a
// projector from running.
//
// Guaranteed: only what a command is documented to change is changed. status, verify and parked
// show change nothing. The doctor's one write is in a transaction that is aborted, its one session
// is empty and released, and the collections and indexes that it makes are those that a projector
// makes at its start.
package operator

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/sluice-cdc/sluice/projector/internal/apply"
	"github.com/sluice-cdc/sluice/projector/internal/build"
	"github.com/sluice-cdc/sluice/projector/internal/deadletter"
	"github.com/sluice-cdc/sluice/projector/internal/remote"
	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/azure"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/shared/terminal"
)

// Projector is one projection and the services that it uses: a projector that does not run.
type Projector struct {
	// Program is the name with which the program is started.
	Program    string
	Projection projection.Projection
	// Remote calls the projection's program; nil: the projection is part of this one.
	Remote   *remote.Client
	Applier  *apply.Applier
	Database *mongo.Database
	Bus      *azservicebus.Client
	// Entity is the entity from which the projector receives.
	Entity azure.Entity
	// Administer returns a client of Service Bus's administration, or [azure.ErrNotAdministered];
	// only the doctor calls it.
	Administer func() (*admin.Client, error)
	// MaxDeliveries is the number of deliveries after which the projector expects the broker to
	// dead-letter a message; if it Asks the administration, before the answer.
	MaxDeliveries int
	Asks          bool
	// LocalAuth is set if Service Bus is reached by a connection string instead of an identity.
	LocalAuth bool
	// Source is the watched collection, for verify.
	Source Source
	// Stream returns the stream that feeds the read model, as the producer's checkpoint names it;
	// for build. Setting is the value of PROJECTION.
	Stream  func(ctx context.Context) (build.Stream, error)
	Setting string
	// Redeem fetches a body that a message could not carry; see [deadletter.Replayer].
	Redeem func(ctx context.Context, c *envelope.Change) (done func(), err error)
	// ApplyTimeout and SettleTimeout are the settings of these names.
	ApplyTimeout, SettleTimeout time.Duration
	// Stops is how long a projector may take to stop after its version is dropped.
	Stops time.Duration
	// Out receives the output of commands.
	Out io.Writer
	// Progress shows the progress of a command; it may be nil.
	Progress *terminal.Progress
}

// bounded bounds one request.
func (*Projector) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, 10*time.Second)
}

// deadLetters are the options of a receiver from the dead-letter queue.
var deadLetters = &azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueDeadLetter}

// peek calls each with messages without taking them, until it returns false. Without each, it peeks
// at one message.
func (p *Projector) peek(ctx context.Context, options *azservicebus.ReceiverOptions, each func(*azservicebus.ReceivedMessage) bool) error {
	receiver, err := p.Entity.Receiver(p.Bus, options)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := p.bounded(context.WithoutCancel(ctx))
		defer cancel()
		_ = receiver.Close(ctx) // it received nothing to settle
	}()
	if each == nil {
		if _, err := receiver.PeekMessages(ctx, 1, nil); err != nil {
			return fmt.Errorf("peek at %s: %w", p.Entity, err)
		}
		return nil
	}
	if err := deadletter.PeekAll(ctx, receiver, each); err != nil {
		return fmt.Errorf("read from %s: %w", p.Entity, err)
	}
	return nil
}
