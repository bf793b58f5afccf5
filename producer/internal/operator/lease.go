package operator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/sluice-cdc/sluice/producer/internal/changes"
	"github.com/sluice-cdc/sluice/producer/internal/checkpoint"
	"github.com/sluice-cdc/sluice/shared/retry"
)

// takeTries limits the attempts to acquire the lease while a leader writes its heartbeat, or a
// standby acquires the lease, in between.
const takeTries = 20

// BreakLease breaks the lease of any holder, and prints what it did.
func (s *Stream) BreakLease(ctx context.Context) error {
	snapshot, err := s.read(ctx)
	if err != nil {
		return err
	}
	if !snapshot.Leased && snapshot.LeaseState != silent {
		return s.print(Result{Epoch: snapshot.Record.Epoch}, "nothing to do: the lease of stream %q is free (%s)", s.Name, snapshot.LeaseState)
	}
	for range takeTries {
		if err = s.breakOnce(ctx, snapshot); !errors.Is(err, checkpoint.ErrChanged) {
			break
		}
		var failed error // err stays that of the last attempt
		if snapshot, failed = s.read(ctx); failed != nil {
			return failed
		}
	}
	if err != nil {
		return err
	}
	return s.print(Result{Changed: true, Epoch: snapshot.Record.Epoch, BrokeLeaseOf: snapshot.Record.Leader},
		"broke the lease that %s held in epoch %d\n"+
			"It stops at its next heartbeat. Whichever replica takes the lease next leads with a higher epoch: that may be the same one.",
		snapshot.Record.Leader, snapshot.Record.Epoch)
}

func (s *Stream) breakOnce(ctx context.Context, snapshot checkpoint.Snapshot) error {
	ctx, cancel := s.withTimeout(ctx)
	defer cancel()
	return s.checkpoint().Break(ctx, snapshot.Tag)
}

// leasedRecord is the record under a lease held by this command.
type leasedRecord struct {
	leaseID string
	from    checkpoint.Snapshot
	broke   bool   // another client held the lease
	epoch   int64  // of the record that this command writes
	kept    string // the name of the copy of the old record
}

// done returns the result for a record that was changed.
func (t leasedRecord) done() Result {
	d := Result{Changed: true, Epoch: t.epoch, OldRecord: t.kept}
	if t.broke {
		d.BrokeLeaseOf = t.from.Record.Leader
	}
	return d
}

// takeLease acquires the lease of the record. While another client holds the lease, the error is
// [ErrRefused]; with force, that lease is broken.
func (s *Stream) takeLease(ctx context.Context, force bool) (t leasedRecord, err error) {
	for range takeTries {
		if t.from, err = s.read(ctx); err != nil {
			return t, err
		}
		if t.from.Leased && !force {
			return t, fmt.Errorf("%w: %s leads stream %q (epoch %d, its lease is held). Stop the producers first, or give "+
				"--force, which breaks its lease", ErrRefused, t.from.Record.Leader, s.Name, t.from.Record.Epoch)
		}
		if t.from.Leased || t.from.LeaseState == silent {
			err = s.breakOnce(ctx, t.from)
			t.broke = t.broke || err == nil
		}
		if err == nil {
			t.leaseID = uuid.NewString()
			if err = s.acquire(ctx, t.leaseID, t.from); err == nil {
				return t, nil
			}
		}
		if !errors.Is(err, checkpoint.ErrChanged) && !errors.Is(err, checkpoint.ErrLeaseHeld) {
			return t, err
		}
		if err := retry.Sleep(ctx, 50*time.Millisecond); err != nil { // a replica was faster: read again
			return t, err
		}
	}
	return t, fmt.Errorf("take the lease of stream %q: %w; %d attempts, each time a replica was faster: stop the producers first",
		s.Name, err, takeTries)
}

func (s *Stream) acquire(ctx context.Context, leaseID string, from checkpoint.Snapshot) error {
	ctx, cancel := s.withTimeout(ctx)
	defer cancel()
	err := s.checkpoint().Acquire(ctx, leaseID, s.LeaseDuration, from.Tag)
	if err != nil && !errors.Is(err, checkpoint.ErrLeaseHeld) && !errors.Is(err, checkpoint.ErrChanged) {
		s.release(ctx, s.checkpoint(), leaseID) // it may have been granted although the response was lost
	}
	return err
}

// release releases a lease, also if it may not be held, and after ctx has ended.
func (s *Stream) release(ctx context.Context, c *checkpoint.Checkpoint, leaseID string) {
	ctx, cancel := s.withTimeout(context.WithoutCancel(ctx))
	defer cancel()
	_ = c.Release(ctx, leaseID) // otherwise it expires, or a standby breaks it after TAKEOVER_AFTER
}

// replace moves the checkpoint to other progress. If positions are counted, a new series begins,
// larger than every position that an earlier leader can have assigned. If they are not and the
// checkpoint goes back, a new generation begins: with unchanged MessageIds the broker would drop
// the messages that it remembers.
func (s *Stream) replace(ctx context.Context, to checkpoint.Progress, change Change) (t leasedRecord, err error) {
	return s.rewrite(ctx, change.Force, func(r *checkpoint.Record) error {
		if err := change.permits(to, *r); err != nil { // another command may have moved it meanwhile
			return err
		}
		to.Published, to.Backfill = r.Progress.Published, r.Progress.Backfill.Interrupted(r.Progress.Position)
		if changes.Counted(r.Progress.Position) || changes.Counted(to.Position) {
			to.Position, to.Settings = changes.NewSeries(r.Epoch), s.Settings
		} else if to.Position < r.Progress.Position {
			r.Generation++
		}
		r.Progress = to
		return nil
	})
}

// rewrite changes the record as a new leader would: acquire the lease, keep the old record, write
// the next epoch under the lease, release. An error of change is returned, and nothing is written.
func (s *Stream) rewrite(ctx context.Context, force bool, change func(*checkpoint.Record) error) (t leasedRecord, err error) {
	if t, err = s.takeLease(ctx, force); err != nil {
		return t, err
	}
	defer s.release(ctx, s.checkpoint(), t.leaseID)
	ctx, cancel := s.withTimeout(ctx)
	defer cancel()
	record := t.from.Record
	if t.epoch, err = s.checkpoint().NextEpoch(ctx, record.Epoch); err != nil {
		return t, err
	}
	record.Epoch, record.Leader, record.HeartbeatAt = t.epoch, s.Operator, time.Now()
	if err := change(&record); err != nil {
		return t, err
	}
	if t.kept, err = s.checkpoint().KeepCopy(ctx, t.from.Record); err != nil {
		return t, err
	}
	if _, err := s.checkpoint().Write(ctx, record, t.leaseID, t.from.Tag); err != nil {
		return t, fmt.Errorf("%w (the old record is kept as %s; check with `producer token show` before trying again)", err, t.kept)
	}
	return t, nil
}
