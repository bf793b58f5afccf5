// Package changes reads a collection's change stream, in order and without a gap, across everything that ends a cursor.
//
// Guaranteed: the sink sees every change after the starting point exactly in commit order, or [Reader.Run] returns an
// error. After an interruption the stream is opened again behind the last event that the sink took. A change always has
// the same identity and the same position, whoever reads it and however often. An event that the server delivers in
// fragments, because it is larger than 16 MB, comes as one; the checkpoint is before all of it or behind all of it.
//
// Not guaranteed: that a change is seen once over the life of a stream. A new leader starts from the checkpoint and
// sees again what its predecessor published after it. And where a deployment gives no token before the first event, a new
// stream's beginning is only certain from the first checkpoint on.
package changes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/producer/internal/checkpoint"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/shared/mongodb"
	"github.com/sluice-cdc/sluice/shared/retry"
	"github.com/sluice-cdc/sluice/shared/telemetry"
)

// Sink takes what is read, in order. It may block to hold the cursor back. An error ends the reading.
type Sink interface {
	// Change takes one change and the progress that is made once it is published.
	Change(ctx context.Context, c envelope.Change, after checkpoint.Progress) error
	// Idle takes progress that needs nothing to be published: the server has nothing more up to there, or what there was
	// is not wanted.
	Idle(ctx context.Context, after checkpoint.Progress) error
	// Begin takes what must be kept before anything else: the place where a stream begins, or begins again after its history was
	// lost; that its positions are translated. It returns once that is kept.
	Begin(ctx context.Context, after checkpoint.Progress) error
}

// Config is what to read and where to begin.
type Config struct {
	Mapping Mapping
	// Pipeline are the user's stages, as [ParsePipeline] accepts them.
	Pipeline mongo.Pipeline
	// Epoch is that of the leadership: it names a new series where positions are counted.
	Epoch int64
	// StartAt begins a new stream at this time; zero means now.
	StartAt time.Time
	// FullDocument and FullDocumentBeforeChange are the change stream's options of those names; empty leaves them out.
	FullDocument             options.FullDocument
	FullDocumentBeforeChange options.FullDocument
	// RestartWhenLost resumes from now when the history is lost, instead of failing with [ErrHistoryLost].
	RestartWhenLost bool
	// ContinueWhenReplaced goes on when another collection was given the watched one's name, instead of failing with [ErrReplaced].
	ContinueWhenReplaced bool
	// Patience is the process's, for the first answers of streams that resume; nil is never patient.
	Patience *Patience
	// Metrics counts; nil counts nothing.
	Metrics *Metrics
	// GiveUpAfter without an answer, Run gives up with [ErrSilent], and with nothing but errors with [ErrFailing]; 0 means never.
	GiveUpAfter time.Duration
}

// ErrSilent is a source that has not answered for too long. Another process may be able to reach it.
var ErrSilent = errors.New("MongoDB has not answered for too long")

// Reader reads one collection.
type Reader struct {
	collection *mongo.Collection
	config     Config
	log        *slog.Logger
	open       atomic.Bool
	tokenless  atomic.Bool
	// firstAnswer is how long the last one after a resume took, in nanoseconds; 0: there was none.
	firstAnswer atomic.Int64
	// current is when the server last had nothing more to give, in nanoseconds of Unix time; 0: it always had.
	current atomic.Int64
}

// New prepares a reader; nothing is requested before Run.
func New(collection *mongo.Collection, config Config, log *slog.Logger) *Reader {
	return &Reader{collection: collection, config: config, log: log}
}

// Reading says that the change stream is open; safe for concurrent use.
func (r *Reader) Reading() bool { return r.open.Load() }

// FirstAnswer is how long MongoDB took from opening the change stream behind the checkpoint to its first answer, the last time; 0 when
// there was none. Safe for concurrent use.
func (r *Reader) FirstAnswer() time.Duration { return time.Duration(r.firstAnswer.Load()) }

// Current is when the server last said that there is nothing after what it has given, by this machine's clock; zero when it has not
// since the stream was opened. Safe for concurrent use.
func (r *Reader) Current() time.Time {
	if at := r.current.Load(); at != 0 {
		return time.Unix(0, at)
	}
	return time.Time{}
}

// Tokenless says that the deployment gives no token before a new stream's first event; safe for concurrent use.
func (r *Reader) Tokenless() bool { return r.tokenless.Load() }

// Run reads what follows from until ctx ends (then it returns nil), the sink refuses, or the stream cannot go on:
// [ErrHistoryLost], [ErrBeginningLost], [ErrUnknownOperation], [ErrFragment], [ErrSettingsChanged], [ErrOtherDeployment],
// [ErrUnstableFilter], [ErrReplaced], or the server's refusal. Whatever may recover by itself is retried, for GiveUpAfter at most
// ([ErrSilent], [ErrFailing]).
func (r *Reader) Run(ctx context.Context, from checkpoint.Progress, sink Sink) error {
	settings, err := r.config.Settings(r.collection)
	if err != nil {
		return err
	}
	c := &cursor{
		answers: newAnswers(), silence: newSilence(r.config.GiveUpAfter),
		reader: r, sink: sink, at: from, split: true,
		numbering: numbering{epoch: r.config.Epoch, settings: settings, unstable: r.config.Unstable()},
	}
	if err := c.numbering.accept(from); err != nil {
		return err
	}
	r.tellVersion(ctx)
	backoff := retry.Backoff{Initial: 100 * time.Millisecond, Max: 5 * time.Second}
	for {
		began, opened := c.at.ResumeToken, time.Now()
		err := c.follow(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if refusal, ok := errors.AsType[*refusal](err); ok {
			return refusal.err
		}
		// Opening the stream is not progress: a server may fail at the next request, every time.
		if !bytes.Equal(began, c.at.ResumeToken) || c.attempt.answered && time.Since(opened) > backoff.Max {
			c.doubts, c.trouble = 0, trouble{}
			backoff.Reset()
		}
		c.trouble.met(err)
		remedy := classify(err, c.attempt)
		if remedy == fatal && mongodb.HasCode(err, mongodb.BSONObjectTooLarge) && c.split && !c.splits {
			remedy = reopen // with the stage that was left out because of an error that passes
		}
		if c.resumesOlder(err) {
			remedy = reopen
		}
		if remedy == historyLost && c.misresumed() && c.doubts < mostDoubts {
			c.doubts++
			remedy = reopen // the driver should have done so
		}
		switch {
		case remedy == reopen && c.trouble.stays():
			remedy = fatal
		case remedy == reopen && c.trouble.answers >= oneByOne:
			c.answers.one()
		}
		switch remedy {
		case fatal:
			if !c.answers.one() {
				return explain(err, c.at.Position)
			}
			// The error stands for a whole answer: the events before the one that cannot be read are asked for one by one.
		case historyLost:
			if !r.config.RestartWhenLost && len(c.at.ResumeToken) == 0 && !r.config.StartAt.IsZero() {
				return fmt.Errorf("%w: %w", ErrBeginningLost, err)
			}
			if !r.config.RestartWhenLost {
				return fmt.Errorf("%w (ON_HISTORY_LOST=fail): %w", ErrHistoryLost, err)
			}
			r.log.Error("history is lost; resuming from now: the changes in between are not published",
				telemetry.KeyPosition, c.at.Position, telemetry.KeyError, err)
			c.at, c.fromNow = c.numbering.restart(c.at), true
		case reopen:
			switch limit := r.config.GiveUpAfter; {
			case limit == 0:
			case c.silence.lasts() >= limit:
				return fmt.Errorf("%w: %w", ErrSilent, err)
			case mongodb.Answered(err) && c.trouble.lasts() >= limit:
				return fmt.Errorf("%w: %w", ErrFailing, err)
			}
			if err != nil {
				r.log.Warn("change stream interrupted; reopening it", telemetry.KeyError, err,
					telemetry.KeyAttempt, backoff.Attempts()+1, telemetry.KeyPosition, c.at.Position)
			}
		}
		r.config.Metrics.reopened(err)
		if backoff.Wait(ctx) != nil {
			return nil
		}
	}
}

// tellVersion logs what the server cannot do that later versions can, where it says what it is.
func (r *Reader) tellVersion(ctx context.Context) {
	const patience = 2 * time.Second
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	version, err := mongodb.ServerVersion(ctx, r.collection.Database().Client())
	if err != nil {
		return // nothing depends on it
	}
	lacks := strings.Join(version.Lacks(), ", ")
	switch {
	case !version.Supported():
		r.log.Warn("this version of MongoDB is older than what is supported", telemetry.KeyVersion, version.String(), telemetry.KeyDescription, "it lacks "+lacks)
	case lacks != "":
		r.log.Info("this version of MongoDB lacks what later ones have", telemetry.KeyVersion, version.String(), telemetry.KeyDescription, lacks)
	}
}

// refusal is an error that reopening the stream does not help against, whatever its code.
type refusal struct{ err error }

func (r *refusal) Error() string { return r.err.Error() }
func (r *refusal) Unwrap() error { return r.err }
