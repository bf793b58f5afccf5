package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/producer/internal/changes"
	"github.com/sluice-cdc/sluice/producer/internal/checkpoint"
	"github.com/sluice-cdc/sluice/shared/envelope"
)

// RestoreOptions selects how a lost checkpoint is recreated.
type RestoreOptions struct {
	// Container holds the copies; empty without copies: the present settings are used instead.
	Container string
	// Copy is the blob to use; empty: the newest copy of the stream.
	Copy string
	// To is the time from which everything is published again, including that second; zero: from
	// the copy's position.
	To time.Time
	// Applied is the operator's confirmation that everything published before the copy has been
	// applied, or still waits in Service Bus.
	Applied bool
	// Reapply allows changes that were published with former settings to be published again with
	// the present ones.
	Reapply bool
}

// maxTermsSinceCopy is more than the number of leaders that a stream can have had between a copy
// and the loss of its original.
const maxTermsSinceCopy = 1_000_000

// TokenRestore recreates the checkpoint of a stream. The number of leaders since the copy is
// unknown, and an epoch must never be reused: counted positions, and consumers that recognise a
// stale leader by its epoch, would mistake new changes for old ones. So the epoch is the time in
// seconds since 1970, which no stream reaches by counting leaders, and which increases with a
// second restoration of the same copy; if the clock is behind, it is a million more than the
// copy's. The generation is new as well: if the entity is the old one, it may remember message ids
// of messages that it has lost. Errors: [ErrRefused], or the services'.
func (s *Stream) TokenRestore(ctx context.Context, from RestoreOptions) error {
	if from.To.IsZero() && !from.Applied {
		return fmt.Errorf("%w: what was published before the copy and had not been applied, parked aggregates included, is lost with its "+
			"namespace, and is not published again from the copy. Name a time before the oldest of it (--to TIME); what is applied already "+
			"is recognised. If all of it is applied, or still waits in Service Bus, use --applied", ErrRefused)
	}
	record, name, err := s.copyToRestore(ctx, from)
	if err != nil {
		return err
	}
	if changed, drain := record.Fingerprint.Diff(s.Fingerprint.Inherit(record.Fingerprint)); drain && !from.Reapply {
		return fmt.Errorf("%w: the copy was made of a stream with other settings: %s. What was published after it with the present ones is "+
			"published again, but what was by the former ones gets other aggregates: read models that have it apply it a second time. Go back "+
			"to those settings, or if no such read model is left: --reapply", ErrRefused, strings.Join(changed, "; "))
	}
	copied := record.Progress.Backfill
	if from.To.IsZero() {
		if _, err = s.continuable(ctx, record.Progress.ResumeToken); err != nil {
			err = fmt.Errorf("%w: MongoDB cannot continue from the copy's token: %w", ErrRefused, err)
		}
	} else {
		record.Progress, err = s.progressBefore(ctx, record.Progress, from.To)
	}
	record.Progress.Backfill = copied.Repeated()
	if err == nil && !changes.Counted(record.Progress.Position) {
		err = checkAcceptedSettings(record.Progress.Position, record.AcceptedAt, from.Reapply)
	}
	if err != nil {
		return err
	}
	present, err := s.existingCheckpoint(ctx)
	if err != nil {
		return err
	}
	record.Epoch = max(time.Now().Unix(), max(record.Epoch, present.from.Record.Epoch)+maxTermsSinceCopy)
	record.Generation = record.Epoch
	record.Leader, record.HeartbeatAt = s.Operator, time.Now()
	done := Result{Changed: true, Epoch: record.Epoch, Generation: record.Generation, To: formatTime(timeOf(record.Progress)), Copy: name}
	if done.OldRecord, err = s.writeRestored(ctx, present, record); err != nil {
		return err
	}
	return s.print(done, "stream %q: the checkpoint is recreated from %s, at %s, epoch %d\n%s", s.Name, cmp.Or(name, "the present settings"), done.To, record.Epoch,
		"The next leader publishes every change after this point again. Read models that have them recognise them by position and apply\n"+
			"nothing twice. Every other subscriber sees them again: it recognises them by cloudEvents_id or position.")
}

// copyToRestore returns the record of the copy, and its name.
func (s *Stream) copyToRestore(ctx context.Context, from RestoreOptions) (r checkpoint.Record, name string, err error) {
	if from.Container == "" {
		return checkpoint.Record{Stream: s.Name, SessionKey: s.SessionKey, Fingerprint: s.Fingerprint}, "", nil
	}
	ctx, cancel := s.withTimeout(ctx)
	defer cancel()
	container, err := s.OtherStore(from.Container)
	if err != nil {
		return r, "", err
	}
	if _, err := container.List(ctx, s.Name+".json."); errors.Is(err, checkpoint.ErrNotFound) {
		return r, "", fmt.Errorf("%w: there is no container %s; check --container", ErrRefused, from.Container)
	}
	if name = from.Copy; name == "" {
		name, err = s.checkpoint().NewestCopy(ctx, container)
	}
	if err == nil {
		r, err = s.checkpoint().ReadCopy(ctx, container, name)
	}
	if errors.Is(err, checkpoint.ErrNotFound) {
		return r, "", fmt.Errorf("%w: there is no copy of stream %q in the container %s; without one, --to TIME alone begins with the "+
			"present settings", ErrRefused, s.Name, from.Container)
	}
	if err == nil && len(r.Progress.ResumeToken) == 0 {
		return r, "", fmt.Errorf("%w: the copy %s holds no resume token: nothing had been read", ErrRefused, name)
	}
	return r, from.Container + "/" + name, err
}

// progressBefore returns the progress at a time before the copy's, if it has one.
func (s *Stream) progressBefore(ctx context.Context, copied checkpoint.Progress, to time.Time) (checkpoint.Progress, error) {
	if changes.Counted(copied.Position) {
		return copied, fmt.Errorf("%w: %s. Restore the copy with --applied, or begin another STREAM_NAME, with new read models", ErrRefused, countedNote)
	}
	progress, err := s.progressAt(ctx, to, copied)
	if err == nil && len(copied.ResumeToken) > 0 && progress.Position > copied.Position {
		return copied, fmt.Errorf("%w: %s is after the copy (%s): the changes between would never be published", ErrRefused,
			formatTime(timeOf(progress)), formatTime(timeOf(copied)))
	}
	progress.Published = copied.Published
	return progress, err
}

// existingCheckpoint returns an existing checkpoint, under a lease of ours, or an empty value. A
// checkpoint from which changes have been published is not replaced: read models are ahead of what
// a restored one would publish, and would take it for repeats.
func (s *Stream) existingCheckpoint(ctx context.Context) (t leasedRecord, err error) {
	snapshot, err := s.read(ctx)
	if errors.Is(err, checkpoint.ErrNotFound) || errors.Is(err, checkpoint.ErrGone) {
		return t, nil
	}
	if err != nil {
		return t, err
	}
	if !snapshot.Leased {
		if t, err = s.takeLease(ctx, false); err != nil {
			return t, err
		}
		snapshot = t.from
	}
	switch n := snapshot.Record.Progress.Published; {
	case n > 0:
		err = fmt.Errorf("%w: stream %q has a checkpoint, from which %d changes have been published: read models that have them would take "+
			"earlier ones for repeats. To publish again from a time, under the same conditions: `producer token rewind --to TIME`", ErrRefused, s.Name, n)
	case t.leaseID == "":
		err = fmt.Errorf("%w: %s leads stream %q. Stop the producers first, or start them with START_FROM=checkpoint", ErrRefused,
			snapshot.Record.Leader, s.Name)
	}
	if err != nil && t.leaseID != "" {
		s.release(ctx, s.checkpoint(), t.leaseID)
	}
	return t, err
}

// writeRestored creates the record, or replaces the existing one and keeps a copy of it.
func (s *Stream) writeRestored(ctx context.Context, present leasedRecord, r checkpoint.Record) (kept string, err error) {
	ctx, cancel := s.withTimeout(ctx)
	defer cancel()
	if present.leaseID == "" {
		return "", s.checkpoint().Restore(ctx, r)
	}
	defer s.release(ctx, s.checkpoint(), present.leaseID)
	if kept, err = s.checkpoint().KeepCopy(ctx, present.from.Record); err != nil {
		return "", err
	}
	_, err = s.checkpoint().Write(ctx, r, present.leaseID, present.from.Tag)
	return kept, err
}

// progressAt returns the progress at an operation time, including that second; its position has the
// version of the stream's.
func (s *Stream) progressAt(ctx context.Context, to time.Time, stream checkpoint.Progress) (p checkpoint.Progress, err error) {
	now, err := s.clusterTime(ctx)
	if err != nil {
		return p, err
	}
	if at := to.Unix(); at <= 0 || (!now.IsZero() && at > int64(now.T)) {
		return p, fmt.Errorf("%w: %s is no time in the past; MongoDB's cluster time is %s", ErrRefused, to.Format(time.RFC3339), formatTime(now))
	}
	at := bson.Timestamp{T: uint32(to.Unix())}
	if oldest, note := s.oldest(ctx); note == "" && at.T < oldest.T {
		return p, fmt.Errorf("%w: the oplog does not reach back to %s: its oldest entry is of %s. What was changed before that is "+
			"gone from the change stream", ErrRefused, formatTime(at), formatTime(oldest))
	}
	token, err := s.tokenAt(ctx, at)
	if err == nil {
		_, err = s.resumable(ctx, token)
	}
	if err != nil {
		return p, fmt.Errorf("%w: MongoDB opens no change stream at %s (if the oplog no longer reaches back there, the error is "+
			"ChangeStreamHistoryLost): %w", ErrRefused, formatTime(at), err)
	}
	if p.Position, err = changes.PositionOf(envelope.TokenText(token), stream); err != nil {
		return p, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	p.ResumeToken, p.ClusterTime, p.Translated = token, at, changes.Translated(p.Position, envelope.TokenText(token))
	return p, nil
}

// countedNote explains why a stream with counted positions cannot go back.
const countedNote = "the stream's positions are counted, so what is published again gets new ones, and read models apply it twice"
