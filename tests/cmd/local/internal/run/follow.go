package run

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-cdc/sluice/shared/retry"
	"github.com/sluice-cdc/sluice/tests/cmd/local/internal/flags"
)

// A run that follows a collection ends within ten seconds of Ctrl-C, whatever the servers do.
const (
	// arrival is how long the changes that were seen may take to reach the mirror.
	arrival = 4 * time.Second
	// comparison is how long the comparison may take, and lookingAgain how long of it a document
	// that differs is read again.
	comparison   = 3 * time.Second
	lookingAgain = time.Second
	// servicesEnd is how long a service may take to stop.
	servicesEnd = 2 * time.Second
)

// follow shows what others write into a collection of their own until it is stopped, and then
// compares what changed. The services still run meanwhile, since the collection may still change.
func (r *runner) follow(ctx context.Context, stop <-chan struct{}, data *data) error {
	if err := r.awaitLeader(ctx, stop); err != nil {
		return err
	}
	if err := r.source.AwaitFrom(ctx); err != nil {
		return err
	}
	r.firstSent.Store(time.Now().UnixNano())
	r.event("write to your collection and watch; Ctrl-C compares every document that changed, and ends")
	group, ctx := errgroup.WithContext(ctx)
	harming, stopHarm := context.WithCancel(ctx)
	defer stopHarm()
	group.Go(func() error { return r.harm(harming) })
	group.Go(func() error { return r.pressed(harming) })
	group.Go(func() error {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-stop:
		}
		stopHarm()
		r.event("stopping: comparing every document that changed")
		late := r.awaitArrival(ctx)
		if late != nil && !givenUp(late) {
			return late
		}
		comparing, cancel := context.WithTimeoutCause(ctx, comparison, errNotCompared)
		defer cancel()
		var err error
		r.verdict, err = r.source.Compare(comparing, data.readModel.Collection(flags.Mirror), lookingAgain)
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("%w: %w", errNotCompared, err)
		}
		return errors.Join(err, late)
	})
	return group.Wait()
}

// awaitArrival waits until everything that was seen is applied, so that the comparison seldom has
// to look twice. What never arrives is the comparison's to find.
func (r *runner) awaitArrival(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, arrival, errOnTheWay)
	defer cancel()
	if err := r.source.CatchUp(ctx); err != nil {
		return err
	}
	began := time.Now()
	var patience reminder
	for seen := r.source.Seen(); r.rec.Counts().Published < seen || !r.drained(); {
		if patience.due(time.Since(began)) {
			r.live.Event(r.clock(), fmt.Sprintf("waiting: %d of %d changes are published, and the broker holds %d messages",
				min(r.rec.Counts().Published, seen), seen, r.stack.ServiceBus.Stats(r.places.route.Out()).Active))
		}
		if err := retry.Sleep(ctx, grain); err != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

// committed returns how many events there are to be published.
func (r *runner) committed() int64 {
	if r.options.Following() {
		return r.source.Seen()
	}
	return r.rec.Counts().Committed
}

// applied returns how many events are applied: to be seen in the read model or, of others' events,
// completed at the broker.
func (r *runner) applied() int64 {
	if r.options.Following() {
		return int64(r.stack.ServiceBus.Stats(r.places.route.Out()).Completed)
	}
	return r.rec.Counts().Visible
}

// compared describes what was compared.
func (r *runner) compared() string {
	text := "every document that changed, in the mirror against its source"
	if r.verdict.Moving > 0 {
		text += fmt.Sprintf("; %d more kept changing", r.verdict.Moving)
	}
	if r.verdict.Gone > 0 {
		text += fmt.Sprintf("; %d more went with a collection that was dropped, renamed or replaced", r.verdict.Gone)
	}
	if !r.verdict.All {
		text += fmt.Sprintf("; the first %d of them", r.verdict.Aggregates+r.verdict.Moving)
	}
	return text
}
