package leader

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/google/uuid"

	"github.com/sluice-cdc/sluice/producer/internal/checkpoint"
	"github.com/sluice-cdc/sluice/shared/outage"
	"github.com/sluice-cdc/sluice/shared/retry"
	"github.com/sluice-cdc/sluice/shared/telemetry"
)

const (
	// requestTimeout bounds each request of a standby; a leader's requests are bounded by its fence.
	requestTimeout = 5 * time.Second
	// closePoll is the time between two requests of a standby, at most, once the leader is late with its heartbeat.
	closePoll = 250 * time.Millisecond
)

// standBy polls the checkpoint until this instance leads. It returns nil without a term when ctx ends first.
func (e *Election) standBy(ctx context.Context) (*Term, error) {
	var seen sighting
	storage := outage.New(e.log, "Blob storage")
	e.log.Info("standing by")
	told := false // that there is no checkpoint
	heard := storage.Hurry(ctx, nil)
	defer func() { heard() }()
	for {
		term, err := e.poll(ctx, &seen)
		heard() // what the first look came to is told below; before that, only that it takes long
		switch {
		case ctx.Err() != nil && term == nil:
			return nil, nil
		case term != nil:
			return term, nil
		case errors.Is(err, checkpoint.ErrUnreadable), errors.Is(err, checkpoint.ErrGone), errors.Is(err, ErrVanished),
			errors.Is(err, ErrSessionKey), errors.Is(err, ErrReading):
			return nil, err
		case errors.Is(err, ErrNoCheckpoint) && !told:
			e.log.Warn("waiting for a checkpoint", telemetry.KeyError, err)
			told = true
		}
		storage.Report(ignore(err, ErrNoCheckpoint))
		if retry.Sleep(ctx, e.pause(seen)) != nil {
			return nil, nil
		}
	}
}

// pause is the time until the next look: a leader that is half a heartbeat late may be gone.
func (e *Election) pause(seen sighting) time.Duration {
	if !seen.since.IsZero() && time.Since(seen.since) > e.config.HeartbeatInterval*3/2 {
		return min(e.config.StandbyPoll, closePoll)
	}
	return e.config.StandbyPoll
}

// sighting is how long the record has been the same, by this machine's monotonic clock.
type sighting struct {
	etag  azcore.ETag
	since time.Time
	free  time.Time // since when it has had no lease; zero while it has one
}

func (s *sighting) of(etag azcore.ETag, now time.Time) (unchanged time.Duration) {
	if s.etag != etag || s.since.IsZero() {
		s.etag, s.since = etag, now
	}
	return now.Sub(s.since)
}

// freeFor is how long the record has had no lease.
func (s *sighting) freeFor(leased bool, now time.Time) time.Duration {
	switch {
	case leased:
		s.free = time.Time{}
		return 0
	case s.free.IsZero():
		s.free = now
	}
	return now.Sub(s.free)
}

// poll looks once, and leads if that is due. A nil term without an error means that somebody else leads.
func (e *Election) poll(ctx context.Context, seen *sighting) (*Term, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()

	snapshot, err := e.records.Read(ctx)
	if errors.Is(err, checkpoint.ErrNotFound) && e.config.AwaitCheckpoint && !e.known {
		seen.of("", time.Now())
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
	e.known = true
	if err := e.refuse(snapshot.Record); err != nil {
		return nil, err
	}
	unchanged := seen.of(snapshot.ETag, time.Now())
	e.observe(State{
		Epoch: snapshot.Record.Epoch, Leader: snapshot.Record.Leader,
		Position: snapshot.Record.Progress.Position, WrittenAt: seen.since,
	})

	var yield time.Duration
	if e.config.Yield != nil {
		yield = e.config.Yield()
	}
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
		if err := e.leases.Break(ctx, snapshot.ETag); err != nil {
			return nil, ignore(err, checkpoint.ErrChanged) // it is not silent after all
		}
	}
	return e.acquire(ctx, snapshot, snapshot.Leased)
}

// refuse refuses to follow on what was published by settings under which the same aggregates have other sessions or numbers.
func (e *Election) refuse(published checkpoint.Record) error {
	if was := published.SessionKey; was != e.config.SessionKey {
		return fmt.Errorf("%w: it was %s and is %s now; go back, or stop every producer, wait until the subscription is "+
			"empty and no aggregate is parked, and tell the checkpoint: `producer session-key %s --drained`",
			ErrSessionKey, was, e.config.SessionKey, e.config.SessionKey)
	}
	if changed, drain := published.Reading.Changed(e.config.Reading.Following(published.Reading)); drain {
		return fmt.Errorf("%w: %s; go back, or stop every producer, wait until the subscription is empty and no aggregate is parked, "+
			"and accept these settings: `producer reading --drained`", ErrReading, strings.Join(changed, "; "))
	} else if len(changed) > 0 {
		return fmt.Errorf("%w: %s; go back, or stop every producer, and accept these settings: `producer reading`",
			ErrReading, strings.Join(changed, "; "))
	}
	return nil
}

// create makes the record of a new stream, unless another producer is first.
func (e *Election) create(ctx context.Context) error {
	if e.known {
		return ErrVanished
	}
	err := e.records.Create(ctx, checkpoint.Record{
		Stream: e.config.Stream, SessionKey: e.config.SessionKey, Reading: e.config.Reading, HeartbeatAt: time.Now(),
	})
	if err == nil {
		e.known = true
		e.log.Warn("no checkpoint found, made a new one: the stream begins where START_FROM says")
	}
	return ignore(err, checkpoint.ErrChanged)
}

// acquire takes the free lease, or one that was just broken, and writes the next epoch: only then is this instance the
// leader.
func (e *Election) acquire(ctx context.Context, snapshot checkpoint.Snapshot, broken bool) (term *Term, err error) {
	leaseID, leased := uuid.NewString(), time.Now().Add(e.config.LeaseDuration-leaseMargin)
	e.hold(leaseID)
	defer func() {
		if term == nil {
			e.hold("")
		}
	}()
	if err := e.leases.Acquire(ctx, leaseID, e.config.LeaseDuration, snapshot.ETag); err != nil {
		if errors.Is(err, checkpoint.ErrLeaseHeld) || errors.Is(err, checkpoint.ErrChanged) {
			return nil, nil // another standby was faster
		}
		// The lease may have been granted although the answer was lost.
		e.giveBack(ctx, leaseID)
		return nil, err
	}
	// Before the first epoch: a checkpoint that somebody has published from must never be taken for one that never existed.
	if !e.begun {
		if err := e.records.Mark(ctx); err != nil {
			e.giveBack(ctx, leaseID)
			return nil, err
		}
		e.begun = true
	}
	began := newTerm(leaseID, leased, snapshot, e.config.Reading)
	if err := e.write(ctx, began); err != nil {
		e.giveBack(ctx, leaseID)
		return nil, ignore(err, ErrLost) // another standby broke the lease in the same moment
	}
	e.config.Metrics.began(broken)
	e.log.Info("leading", telemetry.KeyEpoch, began.Epoch, telemetry.KeyPosition, began.Start.Position)
	return began, nil
}

// giveBack releases a lease that will not be used, so that nobody has to wait until it expires.
func (e *Election) giveBack(ctx context.Context, leaseID string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
	defer cancel()
	err := e.leases.Release(ctx, leaseID)
	if ignore(err, checkpoint.ErrLeaseLost) != nil {
		e.log.Warn("cannot release the lease; it will expire", telemetry.KeyError, err)
	}
}

func ignore(err, benign error) error {
	if errors.Is(err, benign) {
		return nil
	}
	return err
}
