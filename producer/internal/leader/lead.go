package leader

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sluice-cdc/sluice/producer/internal/checkpoint"
	"github.com/sluice-cdc/sluice/producer/store"
	"github.com/sluice-cdc/sluice/shared/outage"
	"github.com/sluice-cdc/sluice/shared/telemetry"
)

// lead runs the work of one term beside its heartbeats. It returns when the work has been joined:
// nil after a requested stop, [ErrLost] or [ErrFenced] if leadership was lost, otherwise the work's
// own error.
func (e *Election) lead(ctx context.Context, term *Term, work Work) error {
	// The work outlives a request to stop: it first finishes what is in progress.
	working, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	finished := make(chan error, 1)
	var joined sync.WaitGroup
	defer joined.Wait()
	joined.Go(func() { finished <- work(working, term) })

	done, err := e.beat(ctx, term, finished, end)
	if done {
		e.handOver(ctx, term)
		return err
	}
	end(err)
	e.ending.Store(new(time.Now()))
	joined.Wait() // its error is not needed: leadership is lost
	e.ending.Store(nil)
	if errors.Is(err, ErrFenced) || errors.Is(err, ErrTooLarge) {
		e.release(ctx, term.leaseID) // this replica may still hold it, and waiting for its expiry would help no replica
	}
	return err
}

const (
	// retriesPerHeartbeat is how many times per heartbeat interval a heartbeat is retried while
	// storage does not respond.
	retriesPerHeartbeat = 5
	// leaseMargin is how long before the lease may expire the leader stops.
	leaseMargin = 500 * time.Millisecond
)

// beat writes the heartbeats of a term until the work has finished (done, with the work's error) or
// leadership is lost (not done, with [ErrLost] or [ErrFenced]).
func (e *Election) beat(
	ctx context.Context, term *Term, finished <-chan error, end context.CancelCauseFunc,
) (done bool, err error) {
	heartbeat := time.NewTicker(e.config.HeartbeatInterval)
	defer heartbeat.Stop()
	renewal := time.NewTimer(e.config.RenewInterval)
	defer renewal.Stop()
	background, release := context.WithCancel(context.WithoutCancel(ctx))
	var renewing sync.WaitGroup
	defer renewing.Wait()
	defer release()
	renewed := make(chan error, 1)
	fence := time.NewTimer(time.Until(term.Deadline()))
	defer fence.Stop()
	stop, overtime := ctx.Done(), (<-chan time.Time)(nil)
	failing := false // since a request failed without showing who leads, until a heartbeat succeeds
	storage := outage.New(e.log, "heartbeat")

	for {
		var err error
		wrote := false
		select {
		case err := <-finished:
			if err == nil && ctx.Err() == nil {
				err = errors.New("work ended without a request to stop")
			}
			return true, err
		case <-fence.C:
			return false, ErrFenced
		case <-stop:
			stop = nil
			close(term.stopping)
			timer := time.NewTimer(e.config.StopTimeout)
			defer timer.Stop()
			overtime = timer.C
		case <-overtime:
			end(ErrStopTimeout)
			overtime = nil // the work returns now; the watermark that it leaves is still valid
		case <-heartbeat.C:
			err, wrote = e.write(background, term), true
		case result := <-term.requests:
			err, wrote = e.write(background, term), true
			result <- err
		case <-renewal.C: // in parallel to the heartbeats, which a slow renewal must not delay
			renewing.Go(func() { renewed <- e.renew(background, term) })
		case err = <-renewed:
			next := e.config.RenewInterval
			if err != nil {
				next = min(next, e.config.HeartbeatInterval)
			}
			renewal.Reset(next)
		}
		switch {
		case errors.Is(err, ErrLost), errors.Is(err, ErrTooLarge):
			return false, err
		case err != nil:
			e.config.Metrics.failures.Inc()
			storage.Report(err, telemetry.KeyEpoch, term.Epoch, telemetry.KeyWait, time.Until(term.Deadline()).Milliseconds())
			// Retried until the fence, sooner than at the next heartbeat: storage may recover a
			// moment before it.
			if !failing {
				failing = true
				heartbeat.Reset(e.config.HeartbeatInterval / retriesPerHeartbeat)
			}
		case failing && wrote:
			failing = false
			heartbeat.Reset(e.config.HeartbeatInterval)
			storage.Report(nil, telemetry.KeyEpoch, term.Epoch)
		}
		fence.Reset(time.Until(term.Deadline()))
	}
}

// write writes the checkpoint. Success proves leadership from the moment before the request until
// FenceAfter later. Errors: [ErrLost], or one that does not show who leads.
func (e *Election) write(ctx context.Context, term *Term) error {
	start := time.Now()
	ctx, cancel := e.withDeadline(ctx, term)
	defer cancel()

	record := checkpoint.Record{
		Stream: e.config.Stream, Epoch: term.Epoch, Leader: e.config.Instance, SessionKey: e.config.SessionKey,
		Fingerprint: term.Fingerprint, AcceptedAt: term.acceptedAt, Generation: term.Generation, Progress: term.current(), HeartbeatAt: start,
	}
	err := e.writeHedged(ctx, term, record)
	switch {
	case errors.Is(err, checkpoint.ErrLeaseLost), errors.Is(err, checkpoint.ErrLeaseHeld),
		errors.Is(err, checkpoint.ErrChanged), errors.Is(err, checkpoint.ErrNotFound):
		return fmt.Errorf("%w: %w", ErrLost, err)
	case errors.Is(err, store.ErrTooLarge):
		return fmt.Errorf("%w (it contains the resume token, with the document's _id, and a snapshot's state), at position %s: %w; use a store that "+
			"holds larger objects, or pass the event with `producer token set --forward`", ErrTooLarge, record.Progress.Position, err)
	case err != nil:
		return err
	}
	if fence := term.Deadline(); !fence.IsZero() {
		e.config.Metrics.margin.Observe(max(time.Until(fence), 0).Seconds())
	}
	term.extend(start.Add(e.config.FenceAfter))
	e.observe(State{
		Epoch: term.Epoch, Leader: e.config.Instance, Position: record.Progress.Position, WrittenAt: start,
	})
	return nil
}

func (e *Election) renew(ctx context.Context, term *Term) error {
	start := time.Now()
	ctx, cancel := context.WithTimeout(ctx, e.config.FenceAfter)
	defer cancel()
	err := e.leases.Renew(ctx, term.leaseID)
	if err == nil {
		term.extendLease(start.Add(e.config.LeaseDuration - leaseMargin))
	}
	if errors.Is(err, checkpoint.ErrLeaseLost) || errors.Is(err, checkpoint.ErrNotFound) {
		return fmt.Errorf("%w: %w", ErrLost, err)
	}
	return err
}

// withDeadline ends a request at the fence, when its response is of no use any more. A term without
// a fence is being acquired: what is left of the fence after the first write must be enough for the
// second.
func (e *Election) withDeadline(ctx context.Context, term *Term) (context.Context, context.CancelFunc) {
	deadline := term.Deadline()
	if deadline.IsZero() {
		deadline = time.Now().Add(e.config.FenceAfter / 2)
	}
	return context.WithDeadline(ctx, deadline)
}

// handOver writes the last checkpoint of a term whose work has been joined, and releases the lease,
// so that a standby leads at its next poll.
func (e *Election) handOver(ctx context.Context, term *Term) {
	ctx = context.WithoutCancel(ctx)
	if err := e.write(ctx, term); err != nil {
		// What has been published since the last checkpoint will be published again, under the same
		// message ids.
		e.log.Warn("cannot write the last checkpoint", telemetry.KeyEpoch, term.Epoch, telemetry.KeyError, err)
	}
	e.release(ctx, term.leaseID)
	e.log.Info("leadership released", telemetry.KeyEpoch, term.Epoch)
}
