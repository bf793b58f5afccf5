package leader

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/sluice-cdc/sluice/producer/internal/checkpoint"
	"github.com/sluice-cdc/sluice/producer/store"
	"github.com/sluice-cdc/sluice/shared/outage"
	"github.com/sluice-cdc/sluice/shared/retry"
	"github.com/sluice-cdc/sluice/shared/telemetry"
)

const (
	// requestTimeout bounds each request of a standby; a leader's requests are bounded by its
	// fence.
	requestTimeout = 5 * time.Second
	// fastPoll is the maximum time between two requests of a standby once the leader is late with
	// its heartbeat.
	fastPoll = 250 * time.Millisecond
)

// standBy polls the checkpoint until this instance leads. It returns nil without a term if ctx ends
// first.
func (e *Election) standBy(ctx context.Context) (*Term, error) {
	var seen observation
	storage := outage.New(e.log, e.config.Store)
	e.log.Info("standing by")
	logged := false // that there is no checkpoint was logged
	heard := storage.Hurry(ctx, nil)
	defer heard()
	for {
		term, err := e.poll(ctx, &seen)
		heard() // the result of the first poll is logged below; before that, only that it takes long
		switch {
		case ctx.Err() != nil && term == nil:
			return nil, nil
		case term != nil:
			return term, nil
		case errors.Is(err, checkpoint.ErrUnreadable), errors.Is(err, checkpoint.ErrGone), errors.Is(err, ErrVanished),
			errors.Is(err, ErrSessionKey), errors.Is(err, ErrMapping):
			return nil, err
		case errors.Is(err, ErrNoCheckpoint) && !logged:
			e.log.Warn("waiting for a checkpoint", telemetry.KeyError, err)
			logged = true
		}
		storage.Report(ignoreError(err, ErrNoCheckpoint))
		if retry.Sleep(ctx, e.pollDelay(seen)) != nil {
			return nil, nil
		}
	}
}

// pollDelay returns the time until the next poll: a leader that is half a heartbeat late may have
// failed.
func (e *Election) pollDelay(seen observation) time.Duration {
	if !seen.since.IsZero() && time.Since(seen.since) > e.config.HeartbeatInterval*3/2 {
		return min(e.config.StandbyPoll, fastPoll)
	}
	return e.config.StandbyPoll
}

// observation tracks how long the record has been the same, by this machine's monotonic clock.
type observation struct {
	tag   store.Tag
	since time.Time
	free  time.Time // since when it has had no lease; zero while it has one
}

func (s *observation) observe(tag store.Tag, now time.Time) (unchanged time.Duration) {
	if s.tag != tag || s.since.IsZero() {
		s.tag, s.since = tag, now
	}
	return now.Sub(s.since)
}

// freeFor returns how long the record has had no lease.
func (s *observation) freeFor(leased bool, now time.Time) time.Duration {
	switch {
	case leased:
		s.free = time.Time{}
		return 0
	case s.free.IsZero():
		s.free = now
	}
	return now.Sub(s.free)
}

// poll reads the checkpoint once, and starts to lead if that is due. A nil term without an error
// means that another replica leads.
func (e *Election) poll(ctx context.Context, seen *observation) (*Term, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()

	snapshot, err := e.records.Read(ctx)
	if errors.Is(err, checkpoint.ErrNotFound) && e.config.AwaitCheckpoint && !e.seen {
		seen.observe("", time.Now())
		e.observe(State{WrittenAt: seen.since}) // storage has been reached: this replica could lead
		return nil, ErrNoCheckpoint
	}
	if errors.Is(err, checkpoint.ErrNotFound) {
		if err := e.create(ctx); err != nil {
			return nil, err
		}
		snapshot, err = e.records.Read(ctx)
	}
	if err != nil {
		return nil, err
	}
	e.seen, e.epoch = true, max(e.epoch, snapshot.Record.Epoch)
	if err := e.checkCompatible(snapshot.Record); err != nil {
		return nil, err
	}
	unchanged := seen.observe(snapshot.Tag, time.Now())
	e.observe(State{
		Epoch: snapshot.Record.Epoch, Leader: snapshot.Record.Leader,
		Position: snapshot.Record.Progress.Position, WrittenAt: seen.since,
	})

	yield := e.config.Yield()
	free := seen.freeFor(snapshot.Leased, time.Now())
	switch {
	case !snapshot.Leased && free < yield:
		return nil, nil
	case snapshot.Leased:
		if e.config.TakeoverByExpiry || unchanged < e.config.TakeoverAfter+yield {
			return nil, nil
		}
		e.log.Warn("the leader is silent, breaking its lease", telemetry.KeyLeader, snapshot.Record.Leader,
			telemetry.KeyEpoch, snapshot.Record.Epoch, telemetry.KeyWait, unchanged.Milliseconds())
		if err := e.leases.Break(ctx, snapshot.Tag); err != nil {
			return nil, ignoreError(err, checkpoint.ErrChanged) // the leader is not silent after all
		}
	}
	return e.acquire(ctx, snapshot)
}

// checkCompatible rejects a checkpoint that was written with settings that route or number the same
// aggregates differently.
func (e *Election) checkCompatible(published checkpoint.Record) error {
	if was := published.SessionKey; was != e.config.SessionKey {
		return fmt.Errorf("%w: it was %s and is now %s; go back, or stop every producer, wait until the subscription is "+
			"empty and no aggregate is parked, and record the new key: `producer session-key %s --drained`",
			ErrSessionKey, was, e.config.SessionKey, e.config.SessionKey)
	}
	if changed, drain := published.Fingerprint.Diff(e.config.Fingerprint.Inherit(published.Fingerprint)); drain {
		return fmt.Errorf("%w: %s; go back, or stop every producer, wait until the subscription is empty and no aggregate is parked, "+
			"and accept these settings: `producer reading --drained`", ErrMapping, strings.Join(changed, "; "))
	} else if len(changed) > 0 {
		return fmt.Errorf("%w: %s; go back, or stop every producer, and accept these settings: `producer reading`",
			ErrMapping, strings.Join(changed, "; "))
	}
	return nil
}

// create creates the record of a new stream, unless another producer is first.
func (e *Election) create(ctx context.Context) error {
	if e.seen {
		return ErrVanished
	}
	err := e.records.Create(ctx, checkpoint.Record{
		Stream: e.config.Stream, SessionKey: e.config.SessionKey, Fingerprint: e.config.Fingerprint, HeartbeatAt: time.Now(),
	})
	if err == nil {
		e.seen = true
		e.log.Warn("no checkpoint found, created a new one: the stream begins at START_FROM")
	}
	return ignoreError(err, checkpoint.ErrChanged)
}

// acquire acquires the free lease, or one that was just broken, and writes the next epoch: only
// then is this instance the leader.
func (e *Election) acquire(ctx context.Context, snapshot checkpoint.Snapshot) (term *Term, err error) {
	leaseID, leased := uuid.NewString(), time.Now().Add(e.config.LeaseDuration-leaseMargin)
	e.reportLease(leaseID)
	defer func() {
		if term == nil {
			e.reportLease("")
		}
	}()
	if err := e.leases.Acquire(ctx, leaseID, e.config.LeaseDuration, snapshot.Tag); err != nil {
		if errors.Is(err, checkpoint.ErrLeaseHeld) || errors.Is(err, checkpoint.ErrChanged) {
			return nil, nil // another standby was faster
		}
		// The lease may have been granted although the response was lost.
		e.release(ctx, leaseID)
		return nil, err
	}
	// Before the first epoch: a checkpoint from which changes were published must never be taken
	// for one that never existed.
	epoch, err := e.records.NextEpoch(ctx, e.epoch)
	if err != nil {
		e.release(ctx, leaseID)
		return nil, err
	}
	e.epoch = epoch
	began := newTerm(epoch, leaseID, leased, snapshot, e.config.Fingerprint)
	if err := e.write(ctx, began); err != nil {
		e.release(ctx, leaseID)
		return nil, ignoreError(err, ErrLost) // another standby broke the lease in the same moment
	}
	lease := begunFree
	if snapshot.Leased {
		lease = begunBroken
	}
	e.config.Metrics.begun.WithLabelValues(lease).Inc()
	e.log.Info("leading", telemetry.KeyEpoch, began.Epoch, telemetry.KeyPosition, began.Start.Position)
	return began, nil
}

// release releases a lease that will not be used, so that no replica has to wait until it expires.
func (e *Election) release(ctx context.Context, leaseID string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
	defer cancel()
	err := e.leases.Release(ctx, leaseID)
	if ignoreError(err, checkpoint.ErrLeaseLost) != nil {
		e.log.Warn("cannot release the lease; it will expire", telemetry.KeyError, err)
	}
}

func ignoreError(err, benign error) error {
	if errors.Is(err, benign) {
		return nil
	}
	return err
}
