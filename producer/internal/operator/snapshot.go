package operator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/producer/internal/changes"
	"github.com/sluice-cdc/sluice/producer/internal/checkpoint"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/shared/retry"
)

// SnapshotOptions is what `snapshot start` starts.
type SnapshotOptions struct {
	// Aggregates are the ids of the aggregates whose documents are published; empty means all.
	Aggregates []string
	// Rate is how many documents per second are published; 0 means SNAPSHOT_RATE.
	Rate int
	// ReadersKnow is the operator's confirmation that every reader knows rows.
	ReadersKnow bool
}

// maxAggregates bounds a snapshot of single aggregates, whose ids are part of every checkpoint.
const maxAggregates = 1000

// SnapshotStart requests a snapshot of the documents of a stream that has begun. Errors:
// [ErrRefused], or the services'.
func (s *Stream) SnapshotStart(ctx context.Context, o SnapshotOptions) error {
	if !o.ReadersKnow {
		return fmt.Errorf("%w: readers must know rows of a snapshot: an earlier version refuses them, and a projector of it parks their aggregates. "+
			"Deploy a version that knows rows to all subscribers first, and then give --readers-know", ErrRefused)
	}
	if err := s.CheckSnapshot(len(o.Aggregates) > 0); err != nil {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	present, err := s.read(ctx)
	if err != nil {
		return err
	}
	progress := present.Record.Progress
	switch {
	case len(progress.ResumeToken) == 0:
		return fmt.Errorf("%w: stream %q has not begun, and begins with a snapshot if its producers have START_FROM=snapshot", ErrRefused, s.Name)
	case changes.Counted(progress.Position):
		return fmt.Errorf("%w: positions are counted on this deployment, and no position stands for a moment of the source", ErrRefused)
	case progress.Backfill != nil && !progress.Backfill.Done:
		return fmt.Errorf("%w: a snapshot of stream %q is being published already (%s); wait until it is complete: `producer snapshot status`",
			ErrRefused, s.Name, progress.Backfill.Mode)
	}
	for _, aggregate := range o.Aggregates {
		if err := s.hasDocuments(ctx, aggregate); err != nil {
			return err
		}
	}
	what := "all documents. Until the snapshot has reached a document, its changes wait"
	if n := len(o.Aggregates); n > 0 {
		what = fmt.Sprintf("the documents of %d aggregates", n)
	}
	return s.ask(ctx, checkpoint.Request{Command: checkpoint.RequestStart, Aggregates: o.Aggregates, Rate: o.Rate}, present, "a snapshot begins, of "+what)
}

// hasDocuments refuses an aggregate without documents.
func (s *Stream) hasDocuments(ctx context.Context, aggregate string) error {
	ctx, cancel := s.withTimeout(ctx)
	defer cancel()
	condition := bson.D{{Key: s.AggregatePath, Value: bson.D{{Key: "$in", Value: envelope.Values(aggregate, false)}}}}
	err := s.Collection.FindOne(ctx, condition, options.FindOne().SetProjection(bson.D{{Key: "_id", Value: 1}})).Err()
	if errors.Is(err, mongo.ErrNoDocuments) {
		return fmt.Errorf("%w: no document of %s.%s has %s %q: --ids takes ids of aggregates, as messages have them, separated by commas",
			ErrRefused, s.Collection.Database().Name(), s.Collection.Name(), s.AggregatePath, aggregate)
	}
	return err
}

// SnapshotPause requests that no more documents are read. confirmed is the operator's confirmation
// that changes may wait meanwhile. Errors: [ErrRefused], or the services'.
func (s *Stream) SnapshotPause(ctx context.Context, confirmed bool) error {
	present, b, err := s.presentSnapshot(ctx)
	switch {
	case err != nil:
		return err
	case b.Paused:
		return s.print(Result{Epoch: present.Record.Epoch}, "nothing to do: the snapshot of stream %q is paused; `producer snapshot resume` continues it", s.Name)
	case b.Suppresses() && !confirmed:
		return fmt.Errorf("%w: changes of documents that the snapshot has not reached are not published before it reaches them, so their read models stand "+
			"still until it is resumed (for %s already). If that is what you want: `producer snapshot pause --yes`",
			ErrRefused, time.Since(b.BeganAt).Round(time.Second))
	}
	return s.ask(ctx, checkpoint.Request{Command: checkpoint.RequestPause}, present, "the snapshot is paused; `producer snapshot resume` continues it")
}

// SnapshotResume withdraws a pause that no leader has taken, or requests that a paused snapshot
// continues. Errors: [ErrRefused], or the services'.
func (s *Stream) SnapshotResume(ctx context.Context) error {
	withdrawn, err := s.withdraw(ctx, checkpoint.RequestPause) // the leader would take it after this command
	if withdrawn || err != nil {
		return err
	}
	present, b, err := s.presentSnapshot(ctx)
	switch {
	case err != nil:
		return err
	case !b.Paused:
		return s.print(Result{Epoch: present.Record.Epoch}, "nothing to do: the snapshot of stream %q is not paused", s.Name)
	}
	return s.ask(ctx, checkpoint.Request{Command: checkpoint.RequestResume}, present, "the snapshot continues")
}

// SnapshotContinue requests that a snapshot goes on although rows of a chunk are published a second
// time. Errors: [ErrRefused], or the services'.
func (s *Stream) SnapshotContinue(ctx context.Context, acceptRepeats bool) error {
	if !acceptRepeats {
		return fmt.Errorf("%w: up to one chunk of documents is published a second time, as of a later time. Projections that replace whole documents are "+
			"not harmed; others park the aggregates as HistoryLost. If that is what you want: --accept-repeats", ErrRefused)
	}
	present, b, err := s.presentSnapshot(ctx)
	switch {
	case err != nil:
		return err
	case b.AcceptRepeats:
		return s.print(Result{Epoch: present.Record.Epoch}, "nothing to do: repeated rows are accepted for the snapshot of stream %q", s.Name)
	}
	return s.ask(ctx, checkpoint.Request{Command: checkpoint.RequestContinue}, present, "repeated rows are accepted until the snapshot is complete")
}

// SnapshotStop withdraws a request that no leader has taken, or requests that a snapshot of single
// aggregates ends. Errors: [ErrRefused], or the services'.
func (s *Stream) SnapshotStop(ctx context.Context) error {
	withdrawn, err := s.withdraw(ctx, "")
	if withdrawn || err != nil {
		return err
	}
	present, b, err := s.presentSnapshot(ctx)
	switch {
	case err != nil:
		return err
	case b.Suppresses():
		return fmt.Errorf("%w: this snapshot (%s) cannot be cancelled: changes of documents that it has not reached were not published, and would be lost. "+
			"Only one that was started with --ids can. `producer snapshot pause` stops the reading of documents", ErrRefused, b.Mode)
	}
	return s.ask(ctx, checkpoint.Request{Command: checkpoint.RequestStop}, present, "the snapshot has ended; rows that are published stay")
}

// presentSnapshot returns the record, and the snapshot that is being published. Errors:
// [ErrRefused] without one.
func (s *Stream) presentSnapshot(ctx context.Context) (checkpoint.Snapshot, *checkpoint.Backfill, error) {
	present, err := s.read(ctx)
	if err != nil {
		return present, nil, err
	}
	b := present.Record.Progress.Backfill
	if b == nil || b.Done {
		return present, nil, fmt.Errorf("%w: no snapshot of stream %q is being published; `producer snapshot start` starts one", ErrRefused, s.Name)
	}
	return present, b, nil
}

// withdraw replaces a request that no present leader has taken, if it is that command; "" is any.
// It reports whether there was one. Errors: [ErrRefused] if the leader has taken it, or the
// services'.
func (s *Stream) withdraw(ctx context.Context, command checkpoint.RequestCommand) (withdrawn bool, err error) {
	limited, cancel := s.withTimeout(ctx)
	defer cancel()
	request, tag, err := s.checkpoint().LastRequest(limited)
	if err != nil || !request.Waiting() || command != "" && request.Command != command {
		return false, err
	}
	present, err := s.read(ctx)
	switch {
	case err != nil:
		return false, err
	case present.Leased && request.TakenBy != "" && request.TakenBy == present.Record.Leader:
		return false, fmt.Errorf("%w: the leader %s has taken the request %s and will carry it out; run the command again when `producer snapshot status` "+
			"shows its answer", ErrRefused, request.TakenBy, request.Command)
	}
	replacement := *request
	replacement.Command, replacement.By, replacement.At = checkpoint.RequestWithdrawn, s.Operator, time.Now().UTC()
	if err := s.checkpoint().WriteRequest(limited, replacement, tag); err != nil {
		return false, fmt.Errorf("%w: a leader has taken it meanwhile; see `producer snapshot status`", err)
	}
	return true, s.print(Result{Changed: true, Epoch: present.Record.Epoch}, "the request %s of stream %q is withdrawn", request.Command, s.Name)
}

// ask stores a request beside the checkpoint, and waits for a while until the leader has answered.
func (s *Stream) ask(ctx context.Context, request checkpoint.Request, present checkpoint.Snapshot, done string) error {
	limited, cancel := s.withTimeout(ctx)
	defer cancel()
	last, tag, err := s.checkpoint().LastRequest(limited)
	switch {
	case err != nil:
		return err
	case last.Waiting():
		return fmt.Errorf("%w: another request has no answer yet: %s", ErrRefused, requestText(*last))
	}
	request.Stream, request.ID, request.By, request.At = s.Name, bson.NewObjectID().Hex(), s.Operator, time.Now().UTC()
	if err := s.checkpoint().WriteRequest(limited, request, tag); err != nil {
		if errors.Is(err, checkpoint.ErrChanged) {
			err = fmt.Errorf("%w: another operator was faster; see `producer snapshot status`", err)
		}
		return err
	}
	if !present.Leased {
		return s.print(Result{Changed: true, Epoch: present.Record.Epoch}, "requested; no producer leads stream %q, so the next leader takes the request", s.Name)
	}
	answer, err := s.answer(limited, request.ID)
	switch {
	case err != nil:
		return fmt.Errorf("the request is stored, and its leader %s has not carried it out yet: it may stand still, or be of a version before snapshots could be "+
			"requested. See `producer snapshot status`; `producer snapshot stop` withdraws a request that no leader has taken: %w", present.Record.Leader, err)
	case answer.Refused != "":
		return fmt.Errorf("%w by the leader %s: %s", ErrRefused, answer.AnsweredBy, answer.Refused)
	}
	return s.print(Result{Changed: true, Epoch: present.Record.Epoch}, "stream %q: %s", s.Name, done)
}

// answer waits for the leader's answer to a request.
func (s *Stream) answer(ctx context.Context, id string) (checkpoint.Request, error) {
	for {
		request, _, err := s.checkpoint().LastRequest(ctx)
		if err == nil && request != nil && (request.ID != id || request.AnsweredBy != "") {
			return *request, nil // another one was stored over the answer
		}
		if wait := retry.Sleep(ctx, 200*time.Millisecond); wait != nil {
			return checkpoint.Request{}, errors.Join(err, wait)
		}
	}
}

// splitIDs returns the aggregates of --ids.
func splitIDs(list string) (ids []string, err error) {
	if strings.HasPrefix(list, "[") && json.Unmarshal([]byte(list), &ids) != nil {
		return nil, errors.New("needs a JSON array of texts behind --ids, or ids separated by commas")
	}
	if ids == nil {
		ids = strings.Split(list, ",")
	}
	for i := range ids {
		if ids[i] = strings.TrimSpace(ids[i]); ids[i] == "" {
			return nil, errors.New("needs ids of aggregates behind --ids, separated by commas, or as a JSON array of texts")
		}
	}
	if len(ids) > maxAggregates {
		return nil, fmt.Errorf("takes at most %d ids: start several snapshots, one after another, or one of all documents", maxAggregates)
	}
	return ids, nil
}
