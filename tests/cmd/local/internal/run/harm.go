package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/sluice-cdc/sluice/shared/retry"
	"github.com/sluice-cdc/sluice/tests/cmd/local/internal/chaos"
	"github.com/sluice-cdc/sluice/tests/cmd/local/internal/report"
	"github.com/sluice-cdc/sluice/tests/internal/child"
)

const (
	// failoverPatience bounds the wait for the next leader: the longest takeover is a lease's 60 s.
	failoverPatience = 75 * time.Second
	// idleTakeover is how long a new leader may have nothing to publish before the takeover itself
	// is taken as measure.
	idleTakeover = time.Second
	// cameBack is how long a leader that was stopped and continued must still lead to count as
	// never replaced.
	cameBack = 3 * time.Second
)

var errNoFailover = errors.New("no other producer took over")

// failovers are the leaders taken away; safe for concurrent use.
type failovers struct {
	over    atomic.Int64 // leader actions that are done
	allDone atomic.Bool  // every planned action, of every kind, is over
	pressed atomic.Int64 // actions that a person asked for and that are not over

	mu      sync.Mutex // guards everything below
	current bool       // between a signal and the next leader's first publish
	epoch   int64      // of the leader that got the signal
	list    []report.Failover
}

func (f *failovers) begin(epoch int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.current, f.epoch = true, epoch
}

// end ends one; a nil failover is one that did not come about.
func (f *failovers) end(measured *report.Failover) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.current = false
	f.over.Add(1)
	if measured != nil {
		f.list = append(f.list, *measured)
	}
}

// underWay reports whether a successor is awaited, and the epoch of the leader that got the signal.
func (f *failovers) underWay() (epoch int64, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.epoch, f.current
}

func (f *failovers) done() bool { return f.allDone.Load() && f.pressed.Load() == 0 }

func (f *failovers) measured() []report.Failover {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]report.Failover{}, f.list...)
}

// harm applies the planned actions, each at its time. Those on leaders come one after the other,
// since each needs a leader. It returns when all of them are over. An end of ctx is no error.
func (r *runner) harm(ctx context.Context) error {
	var group errgroup.Group
	var taking atomic.Int64 // the place in the list of what is being done to a leader; behind the list: nothing is
	none := int64(len(r.options.Chaos))
	taking.Store(none)
	group.Go(func() error {
		for i, a := range r.options.Chaos {
			if !a.Kind.OnLeader() {
				continue
			}
			if err := r.due(ctx, a); err != nil {
				return err
			}
			taking.Store(int64(i))
			if err := r.takeLeader(ctx, a, &group); err != nil {
				return err
			}
			taking.Store(none)
		}
		return nil
	})
	for i, a := range r.options.Chaos {
		group.Go(func() error {
			if err := r.due(ctx, a); err != nil {
				return err
			}
			if !a.Kind.OnLeader() {
				return r.disturb(ctx, a)
			}
			if taking.Load() < int64(i) { // the successor of a leader that was taken before is awaited
				if _, _, ok := r.leader(); !ok {
					r.event(fmt.Sprintf("%s is due and no producer leads: it waits for the next leader", a.Kind))
				}
			}
			return nil
		})
	}
	err := group.Wait()
	r.failovers.allDone.Store(true)
	if ctx.Err() != nil {
		return nil // what is left is not done any more
	}
	return err
}

// due waits for an action's time, which counts from the first insert.
func (r *runner) due(ctx context.Context, a chaos.Action) error {
	if err := until(ctx, func() bool { return r.firstSent.Load() != 0 }); err != nil {
		return err
	}
	return retry.Sleep(ctx, a.At-r.elapsed())
}

// takeLeader signals the leader and measures until its successor publishes.
func (r *runner) takeLeader(ctx context.Context, a chaos.Action, later *errgroup.Group) error {
	r.onLeader.Lock()
	defer r.onLeader.Unlock()
	slot, before, err := r.someLeader(ctx, a)
	if err != nil {
		return err
	}
	signal := map[chaos.Kind]syscall.Signal{
		chaos.LoseLeader: syscall.SIGKILL, chaos.KillLeader: syscall.SIGKILL, chaos.CrashLeader: syscall.SIGKILL,
		chaos.TermLeader: syscall.SIGTERM, chaos.StopLeader: syscall.SIGSTOP,
	}[a.Kind]
	strike := func() (string, error) { return slot.Signal(signal) }
	if a.Kind == chaos.CrashLeader {
		strike = slot.Crash
	}
	r.event(fmt.Sprintf("%s: %s to %s, epoch %d", a.Kind, unix.SignalName(signal), before.Instance, before.Epoch))
	r.failovers.begin(before.Epoch)
	at, atElapsed := time.Now(), r.elapsed()
	r.rec.LeaderLost(at)
	if instance, err := strike(); errors.Is(err, os.ErrProcessDone) {
		r.event(fmt.Sprintf("%s: %s has just ended on its own", a.Kind, before.Instance)) // the next leader is as good a measure
	} else if err != nil {
		return fmt.Errorf("do %s to %s: %w", a, instance, err)
	}
	var continued time.Time // zero: not stopped, or not continued yet
	if a.Kind == chaos.StopLeader {
		continued = at.Add(a.For)
		later.Go(func() error { return r.continueLater(ctx, slot, before.Instance, a.For) })
	}
	f, err := r.awaitSuccessor(ctx, before, at, continued)
	if f != nil {
		f.Kind, f.AtMs, f.Epoch = string(a.Kind), atElapsed.Milliseconds(), before.Epoch
	}
	r.failovers.end(f)
	r.rec.LeaderReplaced(before.Epoch, time.Now())
	return err
}

// pressedOne does what a person asked for, and returns when it is over.
func (r *runner) pressedOne(ctx context.Context, a chaos.Action) error {
	if !a.Kind.OnLeader() {
		return r.disturb(ctx, a)
	}
	var later errgroup.Group
	err := r.takeLeader(ctx, a, &later)
	return errors.Join(err, later.Wait())
}

// someLeader returns the leader, or waits for the next one.
func (r *runner) someLeader(ctx context.Context, a chaos.Action) (slot *child.Slot, status child.Status, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, failoverPatience, fmt.Errorf("wait for a leader for %s: %w", a, errNoLeader))
	defer cancel()
	err = until(ctx, func() (ok bool) {
		slot, status, ok = r.leader()
		return ok
	})
	return slot, status, err
}

func (r *runner) continueLater(ctx context.Context, slot *child.Slot, instance string, after time.Duration) error {
	_ = retry.Sleep(ctx, after) // when the run ends earlier, the process must not stay frozen
	if _, err := slot.Signal(syscall.SIGCONT); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	r.event(fmt.Sprintf("stop-leader: %s goes on after %s", instance, after))
	return nil
}

// awaitSuccessor waits until another leader has published, or has nothing to publish. It is nil
// when a leader that was only stopped came back before anybody noticed.
func (r *runner) awaitSuccessor(ctx context.Context, before child.Status, at, continued time.Time) (*report.Failover, error) {
	deadline := time.Now().Add(failoverPatience)
	if !continued.IsZero() {
		deadline = deadline.Add(continued.Sub(at))
	}
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	var leads time.Time
	f := &report.Failover{}
	for {
		_, status, ok := r.leader()
		if ok && status.Epoch > before.Epoch && leads.IsZero() {
			leads = time.Now()
			f.LeadsAfterMs = leads.Sub(at).Milliseconds()
			r.event(fmt.Sprintf("%s leads, epoch %d, %.2f s after", status.Instance, status.Epoch, leads.Sub(at).Seconds()))
		}
		if first, published := r.rec.FirstAfterEpoch(before.Epoch); published && !leads.IsZero() {
			f.FirstPublishAfterMs, f.MeasuredBy = first.Sub(at).Milliseconds(), report.ByPublish
			return f, nil
		}
		counts := r.rec.Counts()
		nothing := r.stack == nil || counts.Published == r.committed()
		if !leads.IsZero() && nothing && time.Since(leads) > idleTakeover {
			f.FirstPublishAfterMs, f.MeasuredBy = f.LeadsAfterMs, report.ByTakeover
			return f, nil
		}
		if ok && status.Epoch == before.Epoch && !continued.IsZero() && time.Since(continued) > cameBack {
			r.event(fmt.Sprintf("stop-leader: %s was back before a standby took over: no failover", status.Instance))
			return nil, nil
		}
		if err := retry.Sleep(ctx, grain); err != nil {
			if errors.Is(err, context.DeadlineExceeded) {
				err = fmt.Errorf("%s lost its leadership %s ago: %w", before.Instance, time.Since(at).Round(time.Second), errNoFailover)
			}
			return nil, err
		}
	}
}
