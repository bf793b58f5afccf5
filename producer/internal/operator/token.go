package operator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/producer/internal/changes"
	"github.com/sluice-cdc/sluice/producer/internal/checkpoint"
	"github.com/sluice-cdc/sluice/producer/internal/oplog"
	"github.com/sluice-cdc/sluice/shared/commandline"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/shared/mongodb"
)

// Change defines how the checkpoint may be moved.
type Change struct {
	// Force breaks the lease of the leader.
	Force bool
	// Forward allows a position after the present one: the changes in between are never published.
	Forward bool
	// Reapply allows a position before that at which other settings were accepted: the changes in
	// between are published again with the present ones.
	Reapply bool
}

// permits refuses to move a checkpoint where the operator has not asked it to go. Errors:
// [ErrRefused].
func (c Change) permits(to checkpoint.Progress, present checkpoint.Record) error {
	counted, from := changes.Counted(to.Position), present.Progress.Position
	switch {
	case counted && !c.Forward:
		return fmt.Errorf("%w: the stream's positions are counted, so it is unknown whether this token is before the checkpoint or "+
			"after it: changes might never be published, or be published again under new positions, and then be applied twice. If "+
			"that is what you want: `producer token set --forward TOKEN`", ErrRefused)
	case to.Position > from && !c.Forward:
		return fmt.Errorf("%w: %s is after the checkpoint (%s): the changes between would never be published. If that is what "+
			"you want: `producer token set --forward TOKEN`", ErrRefused, formatTime(timeOf(to)), formatTime(timeOf(present.Progress)))
	case counted:
		return nil
	}
	return checkAcceptedSettings(to.Position, present.AcceptedAt, c.Reapply)
}

// checkAcceptedSettings refuses a position before that at which other settings were accepted.
func checkAcceptedSettings(to, acceptedAt string, reapply bool) error {
	if reapply || acceptedAt == "" || to >= acceptedAt {
		return nil
	}
	return fmt.Errorf("%w: the changes up to %s were published by other settings than the present ones (`producer reading`). "+
		"Published again they may have other aggregates: read models that have them do not recognise them, "+
		"and apply them a second time. If no such read model is left: --reapply", ErrRefused, formatTime(envelope.TokenTime(acceptedAt)))
}

// TokenShow prints the token of the checkpoint.
func (s *Stream) TokenShow(ctx context.Context) error {
	snapshot, err := s.read(ctx)
	if err != nil {
		return err
	}
	progress := snapshot.Record.Progress
	if len(progress.ResumeToken) == 0 {
		return errors.New("the checkpoint holds no resume token yet: nothing has been read")
	}
	text, err := bson.MarshalExtJSON(progress.ResumeToken, true, false)
	if err != nil {
		return fmt.Errorf("write resume token: %w", err)
	}
	return commandline.Show(s.Out, s.JSON, Token{Token: json.RawMessage(text), Time: formatTime(timeOf(progress)), Epoch: snapshot.Record.Epoch})
}

// Token is the checkpoint's resume token.
type Token struct {
	Token json.RawMessage `json:"token"` // canonical Extended JSON
	Time  string          `json:"time"`  // its cluster time
	Epoch int64           `json:"epoch"`
}

// Print writes the token as text.
func (t Token) Print(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "token\t%s\ntime\t%s\nepoch\t%d\n", t.Token, t.Time, t.Epoch)
	_ = w.Flush()
}

// TokenCopy copies the checkpoint into another container, under the time of the copy, so that the
// stream can continue if the container of the checkpoints is lost. It takes no lease, so a leader
// continues meanwhile.
func (s *Stream) TokenCopy(ctx context.Context, containerName string) error {
	snapshot, err := s.read(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := s.withTimeout(ctx)
	defer cancel()
	into, err := s.OtherStore(containerName)
	if err != nil {
		return err
	}
	name, err := s.checkpoint().CopyTo(ctx, into, snapshot.Record, time.Now())
	switch {
	case errors.Is(err, checkpoint.ErrNotFound):
		return fmt.Errorf("%w: there is no container %s; create it (az storage container create --name %s), or check --container", err, containerName, containerName)
	case err != nil:
		return err
	}
	return s.print(Result{Epoch: snapshot.Record.Epoch, Copy: containerName + "/" + name},
		"stream %q: the checkpoint of epoch %d is copied to %s/%s", s.Name, snapshot.Record.Epoch, containerName, name)
}

// TokenSet moves the checkpoint to a token: its _data, or the whole document as Extended JSON; or
// to the position of a snapshot's row. The deployment must be able to continue from it. Errors:
// [ErrRefused], or the services'.
func (s *Stream) TokenSet(ctx context.Context, token string, change Change) error {
	if _, _, row := envelope.ParseBoundary(token); row {
		return s.passRow(ctx, token, change)
	}
	raw, err := parseToken(token)
	if err != nil {
		return err
	}
	present, err := s.read(ctx)
	if err != nil {
		return err
	}
	to := checkpoint.Progress{ResumeToken: raw, Position: envelope.TokenText(raw)}
	to.ClusterTime = envelope.TokenTime(to.Position)
	switch from := present.Record.Progress.Position; {
	case changes.Counted(from), from == "" && !envelope.Sortable(to.Position):
		to.Position = changes.NewSeries(present.Record.Epoch + 1)
	case !envelope.Sortable(to.Position):
		return fmt.Errorf("%w: the stream's positions are tokens, so its _data must be hex that begins with 82, as MongoDB's are", ErrRefused)
	}
	if !changes.Counted(to.Position) {
		if to.Position, err = changes.PositionOf(to.Position, present.Record.Progress); err != nil {
			return fmt.Errorf("%w: %w", ErrRefused, err)
		}
		to.Translated = changes.Translated(to.Position, envelope.TokenText(raw))
	}
	if to.AfterInvalidate, err = s.continuable(ctx, raw); err != nil {
		return fmt.Errorf("%w: MongoDB cannot continue from this token: %w", ErrRefused, err)
	}
	return s.move(ctx, to, change)
}

func parseToken(text string) (raw bson.Raw, err error) {
	if strings.HasPrefix(strings.TrimSpace(text), "{") {
		if err := bson.UnmarshalExtJSON([]byte(text), false, &raw); err != nil {
			return nil, fmt.Errorf("%w: the token is not an Extended JSON document: %w", ErrRefused, err)
		}
		return raw, nil
	}
	return bson.Marshal(bson.D{{Key: "_data", Value: text}})
}

// TokenRewind moves the checkpoint back to an operation time, including that second. Errors:
// [ErrRefused], or the services'.
func (s *Stream) TokenRewind(ctx context.Context, to time.Time, change Change) error {
	present, err := s.read(ctx)
	if err != nil {
		return err
	}
	if changes.Counted(present.Record.Progress.Position) {
		return fmt.Errorf("%w: %s. To build read models again: another STREAM_NAME, and new read models", ErrRefused, countedNote)
	}
	progress, err := s.progressAt(ctx, to, present.Record.Progress)
	if err != nil {
		return err
	}
	return s.move(ctx, progress, change)
}

// renumberNote explains what a new series of positions means.
const renumberNote = "\nPositions begin a new series, larger than all before. What a leader that did not stop cleanly had sent after its last\n" +
	"checkpoint is published again under new positions: Service Bus drops it while its duplicate detection remembers it, and\n" +
	"read models do not recognise it.\n"

// TokenRenumber accepts the present reading settings for a stream with counted positions: a new
// series begins at the checkpoint's token. Errors: [ErrRefused], or the services'.
func (s *Stream) TokenRenumber(ctx context.Context) error {
	present, err := s.read(ctx)
	if err != nil {
		return err
	}
	progress := present.Record.Progress
	switch {
	case !changes.Counted(progress.Position):
		return fmt.Errorf("%w: the stream's positions are resume tokens, which no setting changes: there is nothing to accept", ErrRefused)
	case progress.Settings == s.Settings:
		return s.print(Result{Epoch: present.Record.Epoch}, "nothing to do: stream %q was counted with these settings", s.Name)
	}
	// Never by force: an overruled leader would count with the old settings until it notices.
	t, err := s.rewrite(ctx, false, func(r *checkpoint.Record) error {
		r.Progress.Position, r.Progress.Settings = changes.NewSeries(r.Epoch), s.Settings
		if r.Fingerprint != (checkpoint.MappingFingerprint{}) {
			r.Fingerprint.Pipeline, r.Fingerprint.Collection = s.Fingerprint.Pipeline, s.Fingerprint.Collection
		}
		return nil
	})
	if err != nil {
		return err
	}
	return s.print(t.done(), "stream %q: the present PIPELINE and collection are accepted, epoch %d; the old record is kept as blob %s\n%s",
		s.Name, t.epoch, t.kept, renumberNote)
}

// tokenAt returns the token of a change stream opened at a time, before its first event. It
// requests a batch of size 0: if the first response held events, the driver would have no token
// that precedes them.
func (s *Stream) tokenAt(ctx context.Context, at bson.Timestamp) (bson.Raw, error) {
	ctx, cancel := s.withTimeout(ctx)
	defer cancel()
	stream, err := s.Collection.Watch(ctx, s.stages(), options.ChangeStream().SetBatchSize(0).SetStartAtOperationTime(&at))
	if err != nil {
		return nil, err
	}
	defer mongodb.CloseCursor(ctx, stream)
	token := stream.ResumeToken()
	if !envelope.Sortable(envelope.TokenText(token)) {
		return nil, errors.New("the deployment gives no sortable token before the first event")
	}
	if got := envelope.TokenTime(envelope.TokenText(token)); got.T > at.T {
		return nil, fmt.Errorf("the deployment opened it only at %s", formatTime(got))
	}
	return token, nil
}

// continuable checks whether the deployment can continue from a token without a gap.
func (s *Stream) continuable(ctx context.Context, token bson.Raw) (afterInvalidate bool, err error) {
	if afterInvalidate, err = s.resumable(ctx, token); err == nil {
		err = s.stillInOplog(ctx, token)
	}
	return afterInvalidate, err
}

// resumable checks whether the deployment accepts a token, the way the reader would use it.
func (s *Stream) resumable(ctx context.Context, token bson.Raw) (afterInvalidate bool, err error) {
	afterInvalidate, err = s.resumableBy(ctx, token)
	if older, ok := changes.OlderToken(token); ok && mongodb.HasCode(err, mongodb.ResumeTokenVersion) {
		return s.resumableBy(ctx, older)
	}
	return afterInvalidate, err
}

func (s *Stream) resumableBy(ctx context.Context, token bson.Raw) (afterInvalidate bool, err error) {
	err = s.tryOpen(ctx, s.options().SetResumeAfter(token))
	if mongodb.HasCode(err, mongodb.InvalidResumeToken) { // an invalidate event's token: only startAfter accepts it
		if s.tryOpen(ctx, s.options().SetStartAfter(token)) == nil {
			return true, nil
		}
	}
	return false, err
}

// errHistoryGone reports that the deployment would continue from a token that its oplog no longer
// holds, and skip what was lost.
var errHistoryGone = errors.New("its oplog begins after it")

// stillInOplog returns an error if the oplog no longer holds the place of an event's token: a
// deployment may accept such a token. It returns nil if that is unknown.
func (s *Stream) stillInOplog(ctx context.Context, token bson.Raw) error {
	at := envelope.TokenTime(envelope.TokenText(token))
	if at.IsZero() {
		return nil
	}
	ctx, cancel := s.withTimeout(ctx)
	defer cancel()
	if reaches, err := oplog.Reaches(ctx, s.Collection, at, false); err == nil && !reaches {
		return errHistoryGone
	}
	return nil
}

// stages returns the pipeline, which must not be nil.
func (s *Stream) stages() mongo.Pipeline { return append(mongo.Pipeline{}, s.Pipeline...) }

func (s *Stream) options() *options.ChangeStreamOptionsBuilder {
	o := options.ChangeStream().SetMaxAwaitTime(time.Second).SetBatchSize(1)
	if s.FullDocument != "" {
		o.SetFullDocument(s.FullDocument)
	}
	if s.BeforeChange != "" {
		o.SetFullDocumentBeforeChange(s.BeforeChange)
	}
	return o
}

// tryOpen opens a change stream and requests its next event once: servers refuse some starting
// points only then.
func (s *Stream) tryOpen(ctx context.Context, o *options.ChangeStreamOptionsBuilder) error {
	ctx, cancel := s.withTimeout(ctx)
	defer cancel()
	stream, _, err := s.watch(ctx, o)
	if err != nil {
		return err
	}
	defer mongodb.CloseCursor(ctx, stream)
	mongodb.TryFirst(ctx, stream)
	return stream.Err()
}

// watch opens a change stream as a leader does: with the stage that splits large events if the
// deployment supports it.
func (s *Stream) watch(ctx context.Context, o *options.ChangeStreamOptionsBuilder) (stream *mongo.ChangeStream, splits bool, err error) {
	stream, err = s.Collection.Watch(ctx, append(s.stages(), bson.D{{Key: changes.SplitStage, Value: bson.D{}}}), o)
	if _, answered := errors.AsType[mongo.ServerError](err); !answered {
		return stream, true, err
	}
	stream, err = s.Collection.Watch(ctx, s.stages(), o)
	return stream, false, err
}

func (s *Stream) move(ctx context.Context, to checkpoint.Progress, change Change) error {
	present, err := s.read(ctx)
	if err != nil {
		return err
	}
	if err := change.permits(to, present.Record); err != nil {
		return err
	}
	counted := changes.Counted(to.Position)
	receivers := ""
	if !counted && to.Position <= present.Record.Progress.Position {
		bounded, cancel := s.withTimeout(ctx)
		receivers = s.Entity.receivers(bounded) // before anything changes: an unreachable administration takes a while to time out
		cancel()
	}
	t, err := s.replace(ctx, to, change)
	if err != nil {
		return err
	}
	old := t.from.Record
	done := t.done()
	done.From, done.To, done.Generation = formatTime(timeOf(old.Progress)), formatTime(timeOf(to)), old.Generation
	var message strings.Builder
	if t.broke {
		fmt.Fprintf(&message, "broke the lease of %s\n", old.Leader)
	}
	w := tabwriter.NewWriter(&message, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "checkpoint\tmoved from %s to %s\n", done.From, done.To)
	fmt.Fprintf(w, "epoch\t%d → %d: a leader of epoch %d or before is fenced off\n", old.Epoch, t.epoch, old.Epoch)
	fmt.Fprintf(w, "old record\tkept as blob %s\n", t.kept)
	back := !counted && to.Position < old.Progress.Position
	if back {
		done.Generation++
		fmt.Fprintf(w, "generation\t%d → %d\n", old.Generation, done.Generation)
	}
	_ = w.Flush() // writing to a strings.Builder never fails
	switch {
	case counted:
		message.WriteString(renumberNote)
	case to.Position == old.Progress.Position:
		message.WriteString("\nThe checkpoint was there already: nothing is published again, and nothing is left out.")
	case !back:
		message.WriteString("\nThe changes between the old position and the new one will never be published.")
	default:
		fmt.Fprintf(&message, republishNote, receivers)
	}
	return s.print(done, "%s", message.String())
}

// republishNote explains what happens to the changes after a checkpoint that went back.
const republishNote = "\nThe next leader publishes every change after this point again, to %s.\n" +
	"The MessageIds are new ones, so Service Bus accepts them again. Read models that follow already recognise them by position and apply\n" +
	"nothing twice; one whose subscription is new gets them all. Every other subscriber sees them again: it recognises them by cloudEvents_id or position.\n"
