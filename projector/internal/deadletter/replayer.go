package deadletter

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/sluice-cdc/sluice/projector/internal/apply"
	"github.com/sluice-cdc/sluice/projector/internal/sessions"
	"github.com/sluice-cdc/sluice/shared/azure"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/shared/retry"
)

var (
	// ErrBusy means that a projector holds the session and does not release it.
	ErrBusy = errors.New("a projector holds the session")
	// ErrMissing means that the event that parked the aggregate is gone.
	ErrMissing = errors.New("the event that parked the aggregate is neither in the dead-letter queue nor in its session")
	// ErrNotBuilt means that the aggregate's state could not be built. No event in the queue
	// completes it; a repair, which reads the source, does.
	ErrNotBuilt = errors.New("the aggregate could not be built, so no event of the queue completes it")
	// ErrNothingWaits means that no event of an aggregate that a person parked waits, so that none
	// can be dropped.
	ErrNothingWaits = errors.New("no event of the aggregate waits in the dead-letter queue")
	// ErrAnother means that an event is not dropped because another one keeps the aggregate parked
	// by now.
	ErrAnother = errors.New("another event keeps the aggregate parked")
	// ErrUnknownEncoding means that the dead-letter queue holds a message that only a newer version
	// can read. It may hold events of any aggregate.
	ErrUnknownEncoding = errors.New("the dead-letter queue holds a message that this version cannot read; run the command of the producer's version, or of a newer one")
	// ErrLocked means that another receiver has locked a dead letter that must be removed first.
	ErrLocked = errors.New("another receiver has locked a message of the dead-letter queue")
)

// Replayer replays the events of parked aggregates of one projection.
type Replayer struct {
	// Program is what people type to run a command.
	Program string
	Applier *apply.Applier
	Client  *azservicebus.Client
	// Entity is what the projector receives from.
	Entity azure.Entity
	// Redeem gets a body that was too large for its message. An [*envelope.Error] is final; done
	// frees the memory that was reserved.
	Redeem func(ctx context.Context, c *envelope.Change) (done func(), err error)
	// Wait is how long to wait for a session that a projector holds.
	Wait time.Duration
	// ApplyTimeout bounds one attempt to write, SettleTimeout the settlement of one message, and
	// each other request.
	ApplyTimeout, SettleTimeout time.Duration
}

func (p *Replayer) accept(ctx context.Context, session string) (*azservicebus.SessionReceiver, error) {
	// Accepting a session opens links, which takes a dozen round trips.
	ctx, cancel := context.WithTimeout(ctx, 2*p.SettleTimeout)
	defer cancel()
	return p.Entity.Accept(ctx, p.Client, session)
}

// renewUntilReleased renews the session's lock until the returned function is called, which
// releases the session. A renewal that fails does no harm: the lock only keeps others waiting.
func (p *Replayer) renewUntilReleased(ctx context.Context, session *sessions.SDKSession) (release func()) {
	every := min(max(time.Until(session.LockedUntil())/2, time.Second), 20*time.Second)
	renewing, stop := context.WithCancel(ctx)
	var renewer sync.WaitGroup
	renewer.Go(func() {
		for retry.Sleep(renewing, every) == nil {
			_ = session.Renew(renewing)
		}
	})
	return func() {
		stop()
		renewer.Wait()
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.SettleTimeout)
		defer cancel()
		_ = session.Close(closing) // else the lock expires
	}
}

// proveHeld proves that we held the session at some moment after the call: it renews the lock, or
// accepts the session again.
func (p *Replayer) proveHeld(ctx context.Context, session *sessions.SDKSession) error {
	ctx, cancel := context.WithTimeout(ctx, 2*p.SettleTimeout)
	defer cancel()
	if err := session.Renew(ctx); err != nil {
		return fmt.Errorf("renew lock of session %s: %w", session.ID(), err)
	}
	return nil
}

// Details is a parked aggregate with its dead letters.
type Details struct {
	apply.Aggregate
	// Waiting are its dead letters that have not been applied, in the order in which a replay
	// applies them.
	Waiting []Letter
	// Overtaken are its dead letters that the broker put there, without a proof that they were
	// applied before later events were.
	Overtaken []Letter
	// Applied is the number of its dead letters that have been applied: an interrupted replay
	// leaves some.
	Applied int
}

// Show returns the details of a parked aggregate. Errors: [apply.ErrNotParked].
func (p *Replayer) Show(ctx context.Context, aggregate string) (Details, error) {
	a, err := p.Applier.Parked(ctx, aggregate)
	s := Details{Aggregate: a}
	if err != nil {
		return s, err
	}
	letters, _, err := p.lookFor(ctx, false, func(other string) bool { return other == aggregate })
	for _, l := range letters[aggregate] {
		switch p.Applier.DeadLetterState(a.Guard, &l.change, l.Reason) {
		case apply.Done:
			s.Applied++
		case apply.Overtaken:
			s.Overtaken = append(s.Overtaken, l)
		case apply.Waiting:
			s.Waiting = append(s.Waiting, l)
		}
	}
	return s, err
}
