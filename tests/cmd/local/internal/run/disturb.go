package run

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"syscall"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/shared/retry"
	"github.com/sluice-cdc/sluice/tests/cmd/local/internal/chaos"
	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
)

const (
	// slowAck is what an answer to a send takes more: a send of the producer's may still succeed.
	slowAck = 500 * time.Millisecond
	// slowest and slowJitter are what an operation of a slow Service Bus takes more.
	slowest    = 50 * time.Millisecond
	slowJitter = 100 * time.Millisecond
	// flaky is the chance of each thing that can go wrong with an operation of a flaky Service Bus;
	// there are four.
	flaky = 0.005
)

// disturb does the harm that is not done to a leader. One that lasts is over when it returns.
func (r *runner) disturb(ctx context.Context, a chaos.Action) error {
	bus := func(effect string, f servicebus.Faults) error {
		r.event(fmt.Sprintf("%s: %s for %s", a.Kind, effect, a.For))
		end := r.stack.ServiceBus.Inject(f)
		return r.after(ctx, a, end)
	}
	switch a.Kind {
	case chaos.KillProjector:
		return r.killProjector(ctx)
	case chaos.DropServiceBus:
		r.event("drop-servicebus: every connection to Service Bus is cut")
		r.stack.ServiceBus.DropConnections()
	case chaos.LoseAck:
		r.event("lose-ack: the next send will be stored, and its connection cut")
		r.stack.ServiceBus.LoseAcknowledgements(1)
	case chaos.DetachLinks:
		n := r.stack.ServiceBus.DetachLinks(r.places.route.In())
		r.event(fmt.Sprintf("detach-links: Service Bus detached %d links", n))
	case chaos.ExpireLocks:
		n := r.stack.ServiceBus.ExpireLocks(r.places.route.Out())
		r.event(fmt.Sprintf("expire-locks: %d locks have run out", n))
	case chaos.BusyServiceBus:
		busy := servicebus.Fault{Busy: 1}
		return bus("Service Bus throttles", servicebus.Faults{Send: busy, Accept: busy, Manage: busy})
	case chaos.SlowAck:
		return bus("answers to sends take 500 ms more", servicebus.Faults{Send: servicebus.Fault{Delay: slowAck}})
	case chaos.SlowServiceBus:
		slow := servicebus.Fault{Delay: slowest, Jitter: slowJitter}
		return bus("every operation takes 50 to 150 ms more",
			servicebus.Faults{Seed: r.options.Seed, Send: slow, Receive: slow, Settle: slow, Accept: slow, Manage: slow})
	case chaos.FlakyServiceBus:
		bad := servicebus.Fault{Drop: flaky, Busy: flaky, LoseAck: flaky, Detach: flaky}
		return bus("one in fifty operations goes wrong",
			servicebus.Faults{Seed: r.options.Seed, Send: bad, Receive: bad, Settle: bad, Accept: bad, Manage: bad})
	case chaos.MongoStepDown:
		r.event(fmt.Sprintf("mongo-stepdown: the primary steps down for %s", a.For))
		if err := r.stepDown(ctx, a.For); err != nil {
			return err
		}
		return r.after(ctx, a, func() {}) // the server ends it on its own
	case chaos.Blob503:
		r.event(fmt.Sprintf("blob-503: Blob storage is busy for %s", a.For))
		r.stack.Blob.Fail(http.StatusServiceUnavailable, a.For)
		return r.after(ctx, a, func() {}) // the server ends it on its own
	case chaos.Poison:
		return r.poison(ctx, a)
	default:
		return fmt.Errorf("do %s: this command does not know how", a.Kind)
	}
	return nil
}

// stepDown has the primary step down for a time.
func (r *runner) stepDown(ctx context.Context, d time.Duration) error {
	if r.stack != nil {
		r.stack.Mongo.StepDown(d)
		return nil
	}
	seconds := int64(d.Round(time.Second) / time.Second)
	err := r.readModel.Client().Database("admin").RunCommand(ctx, bson.D{
		{Key: "replSetStepDown", Value: max(1, seconds)}, {Key: "force", Value: true}, // also without another member
	}).Err()
	if err != nil {
		return fmt.Errorf("have the primary step down: %w", err)
	}
	return nil
}

// after waits until a lasting action is over, ends it, and waits until a producer leads again: the
// action may have cost the leader its lease.
func (r *runner) after(ctx context.Context, a chaos.Action, end func()) error {
	err := retry.Sleep(ctx, a.For)
	end()
	if err != nil {
		return err
	}
	r.event(fmt.Sprintf("%s is over", a.Kind))
	_, _, err = r.someLeader(ctx, a)
	return err
}

// killProjector kills one that answers; two kills at the same time hit two of them, or the second
// waits.
func (r *runner) killProjector(ctx context.Context) (err error) {
	waited := until(ctx, func() (killed bool) {
		killed, err = r.killOne()
		return killed || err != nil
	})
	return errors.Join(waited, err)
}

func (r *runner) killOne() (killed bool, err error) {
	r.killing.Lock()
	defer r.killing.Unlock()
	for _, s := range r.projectors {
		if _, fresh := s.Status(); !fresh {
			continue
		}
		instance, err := s.Signal(syscall.SIGKILL)
		if errors.Is(err, os.ErrProcessDone) {
			continue
		}
		if err != nil {
			return false, fmt.Errorf("kill a projector: %w", err)
		}
		r.event(fmt.Sprintf("kill-projector: SIGKILL to %s", instance))
		return true, nil
	}
	return false, nil
}
