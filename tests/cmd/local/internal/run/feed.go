package run

import (
	"context"
	"fmt"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/sluice-cdc/sluice/shared/retry"
	"github.com/sluice-cdc/sluice/tests/cmd/local/internal/chaos"
	"github.com/sluice-cdc/sluice/tests/internal/workload"
)

// transactionLifetime is how long MongoDB keeps a transaction whose client has gone
// (transactionLifetimeLimitSeconds); others' writes to its documents conflict with it until then.
const transactionLifetime = time.Minute

// load inserts the events. Being stopped is a good end here: what was inserted is what is checked.
func (r *runner) load(ctx context.Context, data *data) error {
	events, total := r.events()
	loader := workload.Loader{
		Collection: data.source,
		Rate:       r.options.Rate,
		Allowed:    func() int64 { return r.allowed(total) },
		Sending: func(batch []workload.Event, at time.Time) {
			r.firstSent.CompareAndSwap(0, at.UnixNano())
			r.rec.Commit(workload.Commits(batch, at)...)
		},
	}
	inserted, err := loader.Run(ctx, events)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return err
	}
	r.event(fmt.Sprintf("all %d events are inserted", inserted))
	return nil
}

// events returns what is inserted, and how many; 0: without end.
func (r *runner) events() (iter.Seq[workload.Event], int64) {
	if r.options.Input != nil {
		return slices.Values(r.options.Input), int64(len(r.options.Input))
	}
	total := int64(r.options.Generate)
	return func(yield func(workload.Event) bool) {
		n := int64(0)
		if r.options.Build || r.options.BeginWithSnapshot {
			n = -int64(r.options.Before) // those were there before
		}
		for e := range workload.Orders(r.options.Seed) {
			if n < 0 {
				n++
				continue
			}
			if (total > 0 && n == total) || !yield(e) {
				return
			}
			n++
		}
	}, total
}

// reserve is the most events kept back for one failover.
const reserve = 20

// allowed returns how many events may have been inserted by now: a few are kept back for each
// failover that is still to come, since a new leader shows itself by publishing, and for that there
// must be something to publish. During a failover they are given out one by one, the next one only
// when the broker has the one before.
func (r *runner) allowed(total int64) int64 {
	if total == 0 {
		return math.MaxInt64
	}
	planned := int64(r.options.Chaos.Failovers())
	remaining := planned - r.failovers.over.Load()
	if remaining <= 0 {
		return total
	}
	base := total - remaining*min(reserve, max(1, total/(10*planned)))
	counts := r.rec.Counts()
	epoch, underWay := r.failovers.underWay()
	if _, status, ok := r.leader(); ok && status.Epoch <= epoch {
		underWay = false // the old one may come back, or has not gone yet: it would eat up what is kept for its successor
	}
	if underWay && counts.Published == counts.Committed {
		return min(total, max(base, counts.Committed+1))
	}
	return base
}

// awaitDone returns nil when everything is inserted and visible and all harm is over; or, in a run
// without an end of its own, when stop was closed and everything inserted is visible.
func (r *runner) awaitDone(ctx context.Context, stop <-chan struct{}, stopLoading func(), data *data) error {
	patience := stuckAfter
	if slices.ContainsFunc(r.options.Chaos, func(a chaos.Action) bool { return a.Kind.TakesLocks() }) {
		// Nothing can move while a lost session lock runs out, or the transaction of a projector
		// that was killed.
		patience += max(r.places.route.LockDuration, transactionLifetime)
	}
	stopping := r.options.Ends()
	reported := false
	var reminding reminder
	for {
		if !stopping && closed(stop) {
			stopping = true
			r.event("stopping: waiting until everything inserted is to be seen")
			stopLoading()
		}
		done := r.loaded.Load() && !r.before.building() && r.failovers.done() && r.allSeen() && r.healthy() && r.drained()
		if done && stopping {
			return nil
		}
		if done && !reported {
			reported = true
			r.event("everything inserted is to be seen; the stack stays up until Ctrl-C, then it is checked")
		}
		quiet := r.unmoved()
		if stopping && quiet > patience && r.failovers.done() {
			return fmt.Errorf("%w for %s: %s", errStuck, quiet.Round(time.Second), r.missing())
		}
		if err := r.hopeless(stopping); err != nil {
			return err
		}
		if !done && (stopping || r.loaded.Load()) && reminding.due(quiet) {
			if err := r.beyondSource(ctx, data, stopping); err != nil {
				return err
			}
			r.live.Event(r.clock(), "waiting: "+r.missing())
		}
		if err := retry.Sleep(ctx, grain); err != nil {
			return err
		}
	}
}
