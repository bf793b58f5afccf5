package operator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/sluice-cdc/sluice/producer/internal/checkpoint"
)

// TokenMove moves the checkpoint of a stream into another store. Under the lease, the record
// becomes one that no replica leads with: it names the new store and holds everything, so that the
// command can be repeated after any failure. Only then the record is created in the new store, with
// a higher epoch. At no moment both records can have a leader, and no position is lost or repeated.
// Errors: [ErrRefused], or the stores'.
func (s *Stream) TokenMove(ctx context.Context, store string, force bool) error {
	target, err := s.InStore(store)
	if err != nil {
		return err
	}
	left, t, err := s.leave(ctx, store, target, force)
	if err != nil {
		return err
	}
	epoch, changed, err := s.arrive(ctx, left, target)
	if err != nil && !errors.Is(err, ErrRefused) {
		return fmt.Errorf("%w (no replica can lead until `producer token move --to %s` has succeeded: repeat it)", err, store)
	}
	if err != nil {
		return err
	}
	done := t.done()
	done.Changed, done.Epoch = changed, epoch
	if !changed {
		return s.print(done, "nothing to do: the checkpoint of stream %q is in the store %s already, at epoch %d", s.Name, store, epoch)
	}
	return s.print(done, "stream %q: the checkpoint is in the store %s, at epoch %d\n"+
		"Start the producers with CHECKPOINT_STORE=%s, the settings of that store, and START_FROM=checkpoint. Producers with the former\n"+
		"settings do not lead any more. Keep the former checkpoint until the new one is copied or backed up.", s.Name, store, epoch, store)
}

// leave makes the present record one that stays behind, unless an earlier move has done so, and
// returns it.
func (s *Stream) leave(ctx context.Context, store string, target *checkpoint.Checkpoint, force bool) (left checkpoint.Record, t leasedRecord, err error) {
	present, err := s.readMoved(ctx, s.checkpoint())
	switch moved := present.Record.MovedTo; {
	case err == nil && moved == store:
		return present.Record, t, nil
	case err == nil && moved != "":
		return left, t, fmt.Errorf("%w: the checkpoint was moved to the store %s. Use the settings of that store to move it on", ErrRefused, moved)
	}
	switch there, err := s.readMoved(ctx, target); {
	case errors.Is(err, checkpoint.ErrNotFound):
	case err != nil:
		return left, t, fmt.Errorf("read the store %s: %w", store, err)
	case there.Record.MovedTo == "":
		return left, t, fmt.Errorf("%w: the store %s has a checkpoint of stream %q already (epoch %d). If it is of no use, delete it and %s.json.began first",
			ErrRefused, store, s.Name, there.Record.Epoch, s.Name)
	}
	if t, err = s.takeLease(ctx, force); err != nil {
		return left, t, err
	}
	defer s.release(ctx, s.checkpoint(), t.leaseID)
	ctx, cancel := s.withTimeout(ctx)
	defer cancel()
	left = t.from.Record
	if left.Epoch, err = s.checkpoint().NextEpoch(ctx, left.Epoch); err != nil {
		return left, t, err
	}
	left.Leader, left.HeartbeatAt, left.MovedTo = s.Operator, time.Now(), store
	if _, err = s.checkpoint().Write(ctx, left, t.leaseID, t.from.Tag); err != nil {
		return left, t, fmt.Errorf("%w (it is unknown whether the checkpoint was left: repeat the command)", err)
	}
	return left, t, nil
}

// arrive creates the record in the new store, or replaces the one that stays there from an earlier
// move. It returns the record's epoch, and false if an earlier command has done it.
func (s *Stream) arrive(ctx context.Context, record checkpoint.Record, target *checkpoint.Checkpoint) (epoch int64, changed bool, err error) {
	there, err := s.readMoved(ctx, target)
	ctx, cancel := s.withTimeout(ctx)
	defer cancel()
	exists := err == nil
	switch {
	case err != nil && !errors.Is(err, checkpoint.ErrNotFound):
		return 0, false, err
	case exists && there.Record.MovedTo != "" && there.Record.Epoch > record.Epoch:
		return 0, false, fmt.Errorf("%w: the checkpoint was moved on to the store %s", ErrRefused, there.Record.MovedTo)
	case exists && there.Record.MovedTo == "" && continues(record, there.Record):
		return there.Record.Epoch, false, nil
	case exists && there.Record.MovedTo == "":
		return 0, false, fmt.Errorf("%w: a producer has begun the stream there and skips what was not published: stop it, and delete its "+
			"checkpoint and %s.json.began there", ErrRefused, s.Name)
	}
	if err := s.checkpoint().CopyBeside(ctx, target); err != nil {
		return 0, false, err
	}
	if record.Epoch, err = target.NextEpoch(ctx, max(record.Epoch, there.Record.Epoch)); err != nil {
		return 0, false, err
	}
	record.Leader, record.HeartbeatAt, record.MovedTo = s.Operator, time.Now(), ""
	if !exists {
		return record.Epoch, true, target.Restore(ctx, record)
	}
	leaseID := uuid.NewString()
	if err := target.Acquire(ctx, leaseID, s.LeaseDuration, there.Tag); err != nil {
		return 0, false, err
	}
	defer s.release(ctx, target, leaseID)
	_, err = target.Write(ctx, record, leaseID, there.Tag)
	return record.Epoch, true, err
}

// continues reports whether a record can be the continuation of one that was left, and not that of
// a stream that a producer has begun in the new store meanwhile.
func continues(left, now checkpoint.Record) bool {
	return now.Epoch > left.Epoch && now.Generation >= left.Generation &&
		now.Progress.Position >= left.Progress.Position && now.Progress.Published >= left.Progress.Published
}

func (s *Stream) readMoved(ctx context.Context, c *checkpoint.Checkpoint) (checkpoint.Snapshot, error) {
	ctx, cancel := s.withTimeout(ctx)
	defer cancel()
	return c.ReadMoved(ctx)
}
