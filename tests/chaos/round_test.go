package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/sluice-cdc/sluice/shared/retry"
	"github.com/sluice-cdc/sluice/tests/internal/wire"
)

// reach is how long a process may take to reach a step.
const reach = 30 * time.Second

// errNotReached means that no process reached the step: the one that should have lost its role
// meanwhile.
var errNotReached = errors.New("the step was not reached")

// round kills or stops one process at the step, and waits until it or its successor works again.
func (r *ring) round(ctx context.Context, s strike, stopped time.Duration) error {
	for attempt := 1; ; attempt++ {
		err := r.try(ctx, s, stopped)
		if !errors.Is(err, errNotReached) || attempt == 3 {
			return err
		}
		r.trace.add("not reached: %s", s)
	}
}

func (r *ring) try(ctx context.Context, s strike, stopped time.Duration) error {
	leader, err := r.ready(ctx)
	if err != nil {
		return err
	}
	trap := wire.NewTrap(s.in(r.options))
	defer func() {
		trap.Release(true)
		for _, place := range r.slots() {
			place.proxy.Arm(nil)
		}
	}()
	if err := r.lead(s, leader, trap); err != nil {
		return err
	}
	waiting, cancel := context.WithTimeout(ctx, reach)
	defer cancel()
	select {
	case <-trap.Sprung():
	case <-waiting.Done():
		return fmt.Errorf("%s: %w", s, errNotReached)
	}
	return r.strike(ctx, s, trap, stopped)
}

// lead sets the trap, and makes a process reach the step if that needs help.
func (r *ring) lead(s strike, leader *slot, trap *wire.Trap) error {
	arm := func(places ...*slot) {
		for _, place := range places {
			place.proxy.Arm(trap)
		}
	}
	switch s.role {
	case leading:
		arm(leader)
	case takingOver:
		r.trace.add("SIGKILL to %s, so that another producer takes over", leader.Name)
		if _, err := leader.Signal(syscall.SIGKILL); err != nil {
			return err
		}
		arm(r.producers...)
	case handingOn:
		arm(leader)
		r.trace.add("SIGTERM to %s", leader.Name)
		if _, err := leader.Signal(syscall.SIGTERM); err != nil {
			return err
		}
	case projecting:
		arm(r.projectors...)
	}
	return nil
}

// strike signals the process at the step, waits until another one has taken over, and decides the
// fate of the held message.
func (r *ring) strike(ctx context.Context, s strike, trap *wire.Trap, stopped time.Duration) error {
	var victim *slot
	for _, place := range r.slots() {
		if place.proxy == trap.By() {
			victim = place
		}
	}
	epoch, at := r.checkpoints.Epoch(), time.Now()
	instance, err := victim.Signal(s.signal)
	if errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("%s: %w: %w", s, errNotReached, err)
	}
	if err != nil {
		return err
	}
	r.trace.add("%s (%s, epoch %d)", s, instance, epoch)
	if s.role != projecting {
		first, err := r.replaced(ctx, epoch)
		if err != nil {
			return err
		}
		r.trace.add("first publish of a later epoch after %s", first.Sub(at).Round(time.Millisecond))
	} else if err := r.movedOn(ctx); err != nil {
		return err
	}
	if s.signal == syscall.SIGSTOP {
		if err := retry.Sleep(ctx, stopped-time.Since(at)); err != nil {
			return errors.Join(err, r.wake(victim))
		}
	}
	trap.Release(s.late)
	if s.signal == syscall.SIGSTOP {
		return r.wake(victim)
	}
	return nil
}

// replaced waits until a producer publishes in a later epoch, and returns when the first one did.
func (r *ring) replaced(ctx context.Context, epoch int64) (first time.Time, err error) {
	err = r.until(ctx, "a producer publishes in a later epoch", func() (published bool) {
		first, published = r.rec.FirstAfterEpoch(epoch)
		return published
	})
	return first, err
}

// movedOn waits until other projectors have finished the work of the one that was struck.
func (r *ring) movedOn(ctx context.Context) error {
	return r.until(ctx, "the other projector does its work", r.mark())
}

// wake continues a stopped process, which does not know what happened meanwhile.
func (r *ring) wake(victim *slot) error {
	instance, err := victim.Signal(syscall.SIGCONT)
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	r.trace.add("SIGCONT to %s", instance)
	return err
}
