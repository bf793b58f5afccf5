package build

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/sluice-cdc/sluice/projector/internal/apply"
	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/shared/mongodb"
	"github.com/sluice-cdc/sluice/shared/retry"
)

// Builder builds one version of a projection.
type Builder struct {
	Projection projection.Projection
	Applier    *apply.Applier
	ReadModel  *mongo.Database // with write and read concern majority
	Source     Source          // by a client that reads on the primary
	Stream     Stream
	// Reread reads the stream again: at the start, between ranges, and before the build ends.
	Reread func(ctx context.Context) (Stream, error)
	// Attach reaches the subscription, or the error why it cannot be. What is committed after it
	// has returned arrives there.
	Attach func(ctx context.Context) error
	// Entity returns when the subscription was created, or the zero time if that cannot be known,
	// or the error why the build cannot go on, such as a topic that is nearly full. It is asked at
	// the start and between ranges.
	Entity func(ctx context.Context) (created time.Time, err error)
	// Chunk is about how many documents a range has.
	Chunk int64
	// Parallel is how many ranges are read while an earlier one is written.
	Parallel int
	// Rate is about how many documents are read in a second; 0: as many as can be.
	Rate int64
	// Skip are the documents that have no effect, by the text of their _id.
	Skip map[string]bool
	// AcceptFailed ends the build although aggregates could not be built: they stay parked.
	AcceptFailed bool
	// Progress reports how many of about how many documents were read.
	Progress func(what string, done, total int64)

	ahead ahead
	// asked is when Reread and Entity were asked last.
	asked time.Time
}

// askEvery is the time between two questions to Reread and Entity.
const askEvery = 10 * time.Second

// Report is how a build stands.
type Report struct {
	Projection string        `json:"projection"`
	Source     string        `json:"source"`
	State      string        `json:"state"`
	Aggregates int64         `json:"aggregates"`
	Events     int64         `json:"events"`
	Failed     int64         `json:"failed"`
	Ranges     int64         `json:"ranges"`
	Took       time.Duration `json:"took_ns"`
}

const (
	// transactionOf is how many aggregates are written in one transaction, and insertOf in one
	// insert.
	transactionOf = 100
	insertOf      = 1000
	// transactionWrites is how many writes aggregates may have together in one transaction, which
	// MongoDB ends after a minute.
	transactionWrites = 10_000
)

// Run builds what is left, and returns when every range is built or ctx ends; it can be run again
// at any point. What passes, such as a database that is away, is waited out. Errors, besides those
// of the databases: [apply.ErrForeignGuard], and each thing for which a read model cannot be built
// from documents: a source before MongoDB 5.0, with a collation, without an index, with ids of
// several types; a stream that is not there, whose positions are counted, which has a PIPELINE or
// publishes more than inserts; a projection whose writes depend on more than documents.
func (b *Builder) Run(ctx context.Context) (Report, error) {
	began := time.Now()
	report := func(s *State, err error) (Report, error) {
		r := Report{Projection: b.Projection.Name(), Source: b.Source.String(), Took: time.Since(began)}
		if s != nil {
			r.State, r.Aggregates, r.Events, r.Failed, r.Ranges = s.State, s.Aggregates, s.Events, s.Failed, s.Ranges
		}
		return r, err
	}
	if err := b.Stream.check(b.Source, string(envelope.Insert)); err != nil {
		return report(nil, err)
	}
	uuid, err := b.examine(ctx)
	if err != nil {
		return report(nil, err)
	}
	if err := b.Attach(ctx); err != nil {
		return report(nil, err)
	}
	s, err := b.open(ctx, uuid)
	if err != nil {
		return report(s, err)
	}
	defer b.ahead.drop()
	alone, gone := 0, error(nil) // attempts to read one aggregate, and why there is no further one
	for size := b.Chunk; s.State == Building; {
		begun, before := time.Now(), s.Events
		var next *State
		err := b.persist(ctx, func() (err error) {
			if err := b.follows(ctx, s); err != nil {
				return err
			}
			next, err = b.step(ctx, s, size, gone)
			return err
		})
		switch {
		case errors.Is(err, errTooOld):
			if size == 1 { // the range is one aggregate
				switch alone++; {
				case alone == attempts && mongodb.HasCode(err, mongodb.InvalidOptions):
					return report(s, tooLong(time.Since(begun), err)) // as it would be with every aggregate
				case alone == attempts:
					gone = tooLong(time.Since(begun), err)
				}
			}
			size = max(size/2, 1)
			if err := retry.Sleep(ctx, time.Second); err != nil {
				return report(s, err)
			}
			continue
		case err != nil:
			return report(s, err)
		}
		s, size, alone, gone = next, min(2*size, b.Chunk), 0, nil
		if err := b.pause(ctx, begun, s, s.Events-before); err != nil {
			return report(s, err)
		}
	}
	if s.State == Failed && b.AcceptFailed {
		s, err = b.accept(ctx, s)
	}
	return report(s, err)
}

// open begins the build, or goes on with the one that was begun.
func (b *Builder) open(ctx context.Context, uuid bson.Binary) (*State, error) {
	s, err := Read(ctx, b.ReadModel, b.Projection)
	if err != nil {
		return nil, err
	}
	if s == nil {
		guards := b.Applier.GuardCollection()
		err := b.ReadModel.Collection(guards).FindOne(ctx, bson.D{}).Err()
		switch {
		case err == nil: // they are another process's, if that has begun this build meanwhile
			s, err = Read(ctx, b.ReadModel, b.Projection)
			if err == nil && s == nil {
				err = fmt.Errorf("%w: %s is not empty", apply.ErrForeignGuard, guards)
			}
		case errors.Is(err, mongo.ErrNoDocuments):
			if err := b.fedByOne(ctx); err != nil {
				return nil, err
			}
			s, err = b.begin(ctx, uuid)
		default:
			err = fmt.Errorf("read %s: %w", guards, err)
		}
		if err != nil {
			return nil, err
		}
	}
	switch {
	case s.State == Dropped:
		return s, ErrDropped
	case s.Source != b.Source.String(), s.Stream != b.Stream.Name:
		return s, fmt.Errorf("this version is built from %s beside stream %s: %s beside stream %s needs a version of its own", s.Source, s.Stream, b.Source, b.Stream.Name)
	case !s.UUID.Equal(uuid):
		return s, fmt.Errorf("%s is another collection than the one from which this build began: drop the collections of this version, and "+
			"%s_build, and build it again", b.Source, b.Projection.Name())
	case s.State == Failed && !b.AcceptFailed:
		if s, err = b.again(ctx, s); err != nil {
			return s, err
		}
	}
	if s.Retry {
		return b.forgetFailures(ctx, s)
	}
	return s, nil
}

// fedByOne returns an error if several streams feed the version of the projection that readers use:
// the history of all but one would be missing.
func (b *Builder) fedByOne(ctx context.Context) error {
	aggregate, err := b.Applier.AlsoFedBy(ctx, b.Stream.Name)
	if err == nil && aggregate != "" {
		err = fmt.Errorf("version 1 of %s is fed by another stream than %s, too (aggregate %q): a build reads the source of one stream, and "+
			"the events of the others would be missing. Have a projection of its own for each stream", projection.Base(b.Projection).Name(), b.Stream.Name, aggregate)
	}
	return err
}

// persist repeats what fails for a reason that may pass.
func (b *Builder) persist(ctx context.Context, step func() error) error {
	backoff := retry.Backoff{Initial: 200 * time.Millisecond, Max: 10 * time.Second}
	for {
		err := step()
		if err == nil || !passes(err) {
			return err
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%w: %w", errStopped, err)
		}
		b.Progress("build waits: "+err.Error(), 0, 0)
		if backoff.Wait(ctx) != nil {
			return fmt.Errorf("%w: %w", errStopped, err)
		}
	}
}

// errStopped is a build whose context ended.
var errStopped = errors.New("the build was stopped; what is built stays built: run the command again")

// passes reports whether an error may be over in a while.
func passes(err error) bool {
	if errors.Is(err, errStopped) || errors.Is(err, errTooOld) || errors.Is(err, apply.ErrForeignGuard) {
		return false
	}
	if errors.Is(err, errUnread) {
		return true
	}
	_, server := errors.AsType[mongo.ServerError](err)
	return (server || mongo.IsNetworkError(err) || mongo.IsTimeout(err)) && apply.Classify(err) == apply.Transient
}

// attempts is how often a single aggregate is read that the source does not hold for long enough.
const attempts = 3

func tooLong(took time.Duration, err error) error {
	if mongodb.HasCode(err, mongodb.InvalidOptions) {
		return fmt.Errorf("the source refused %d times to read documents as of a cluster time. Check the version, the storage engine and the replication "+
			"of its members, and run the command again: %w", attempts, err)
	}
	return fmt.Errorf("its documents were read %d times, and each time the source had dropped that moment before the read ended (the last time after %v). "+
		"Raise minSnapshotHistoryWindowInSeconds of the source, 300 by default: %w", attempts, took.Round(time.Millisecond), err)
}

// step builds the next range. gone is the reason why the next aggregate cannot be read; nil if it
// can.
func (b *Builder) step(ctx context.Context, s *State, size int64, gone error) (*State, error) {
	t, err := b.taking(ctx, s, size, gone)
	if err != nil {
		return nil, err
	}
	switch now, _, err := b.collection(ctx); {
	case errors.Is(err, errNoCollection):
		return nil, fmt.Errorf("%s was dropped while it was read: what is built of it is not complete", b.Source)
	case err != nil:
		return nil, err
	case !now.Equal(s.UUID):
		return nil, fmt.Errorf("%s was replaced by another collection while it was read: what is built of it is not complete", b.Source)
	}
	if t.span.To.Type == 0 { // the last range
		b.asked = time.Time{}
		if err := b.follows(ctx, s); err != nil {
			return nil, err
		}
	}
	guards := apply.Build{ID: s.ID, Stream: s.Stream, Position: boundary(t.span.At)}
	if err := b.write(ctx, guards, t.all); err != nil {
		return nil, err
	}
	return b.advance(ctx, s, t)
}

// taking returns the next range, or the next aggregate as one that cannot be built.
func (b *Builder) taking(ctx context.Context, s *State, size int64, gone error) (*taken, error) {
	if gone == nil {
		return b.take(ctx, s.Cursor, size)
	}
	id, err := b.id(ctx, s.Cursor, 0)
	switch {
	case err != nil:
		return nil, err
	case id.Type == 0: // it is gone
		return b.take(ctx, s.Cursor, size)
	}
	at, err := mongodb.ConfirmedTime(ctx, b.Source.Collection)
	if err != nil {
		return nil, err
	}
	name, _ := envelope.Text(id) // it has one of a few types
	return &taken{span: span{To: id, At: at}, all: []*apply.Built{{Aggregate: name, Failed: gone}}}, nil
}

// readRange reads and folds the range behind a value, up to another one, as of a time of its own.
func (b *Builder) readRange(ctx context.Context, from, to bson.RawValue) (*taken, error) {
	at, err := mongodb.ConfirmedTime(ctx, b.Source.Collection)
	if err != nil {
		return nil, err
	}
	if since := envelope.TokenTime(b.Stream.Position); since.After(at) {
		return nil, fmt.Errorf("the source's cluster time is %v, and the checkpoint of stream %s is at %v already: SOURCE_MONGODB_URI names "+
			"another cluster than the producer's MONGODB_URI, or an old copy of it. Correct it", at, b.Stream.Name, since)
	}
	t := &taken{span: span{To: to, At: at}}
	return t, b.asOf(ctx, at, func(ctx context.Context) error {
		if from.Type == 0 || to.Type == 0 { // before anything is built, and once all else is
			if err := b.kinds(ctx); err != nil {
				return err
			}
		}
		return b.read(ctx, from, t)
	})
}

func (b *Builder) write(ctx context.Context, guards apply.Build, all []*apply.Built) error {
	most := transactionOf
	if _, one := b.Projection.(projection.OneDocument); one {
		most = insertOf
	}
	for len(all) > 0 {
		n, writes := 0, 0
		for ; n < min(most, len(all)) && (n == 0 || writes+len(all[n].Writes) <= transactionWrites); n++ {
			writes += len(all[n].Writes)
		}
		if err := b.persist(ctx, func() error { return b.Applier.Build(ctx, guards, all[:n]) }); err != nil {
			return err
		}
		all = all[n:]
	}
	return nil
}

// pause keeps the rate of a range that was begun then, and reports the progress.
func (b *Builder) pause(ctx context.Context, begun time.Time, s *State, events int64) error {
	b.Progress("build", s.Events, s.Total)
	if b.Rate <= 0 {
		return nil
	}
	due := time.Duration(float64(events) / float64(b.Rate) * float64(time.Second))
	return retry.Sleep(ctx, max(due-time.Since(begun), 0))
}

// documentText returns the _id of a document as an operator writes it.
func documentText(document bson.Raw) string {
	id := document.Lookup("_id")
	if text, ok := envelope.Text(id); ok {
		return text
	}
	return strings.TrimSpace(id.String())
}
