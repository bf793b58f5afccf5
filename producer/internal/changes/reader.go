// Package changes reads a collection's change stream, in order and without a gap, across everything
// that ends a cursor.
//
// Guaranteed: the sink sees every change after the starting point exactly in commit order, or
// [Reader.Run] returns an error. After an interruption the stream is opened again after the last
// event that the sink accepted. A change always has the same identity and the same position, no
// matter which replica reads it, or how often. An event that the server delivers in fragments,
// because it is larger than 16 MB, is reassembled; the checkpoint is before all of it or after all
// of it.
//
// Not guaranteed: that a change is seen once over the life of a stream. A new leader starts from
// the checkpoint and sees again what its predecessor published after it. If a deployment returns no
// token before the first event, the beginning of a new stream is only certain from the first
// checkpoint on.
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

// Sink receives what is read, in order. It may block to hold the cursor back. An error ends the
// reading.
type Sink interface {
	// Change receives one change, and the progress that is made once it is published.
	Change(ctx context.Context, c envelope.Change, after checkpoint.Progress) error
	// Idle receives progress that needs nothing to be published: there is nothing more up to there,
	// or only events that are not wanted.
	Idle(ctx context.Context, after checkpoint.Progress) error
	// Begin receives progress that must be stored before anything else: the place where a stream
	// begins, or begins again after its history was lost, or that its positions are translated. It
	// returns once that is stored.
	Begin(ctx context.Context, after checkpoint.Progress) error
}

// Config defines what to read and where to begin.
type Config struct {
	Mapping Mapping
	// Pipeline holds the user's stages, as [ParsePipeline] returns them.
	Pipeline mongo.Pipeline
	// Epoch is the epoch of the leadership. It names a new series if positions are counted.
	Epoch int64
	// StartAt is the time at which a new stream begins; zero means now.
	StartAt time.Time
	// FullDocument and FullDocumentBeforeChange are the change stream's options of those names;
	// empty leaves them out.
	FullDocument             options.FullDocument
	FullDocumentBeforeChange options.FullDocument
	// RestartWhenLost resumes from now if the history is lost, instead of failing with
	// [ErrHistoryLost].
	RestartWhenLost bool
	// ContinueWhenReplaced continues if another collection was given the watched one's name,
	// instead of failing with [ErrReplaced].
	ContinueWhenReplaced bool
	// Backfill configures snapshots.
	Backfill Backfill
	// Requests holds what an operator requests of a snapshot.
	Requests Requests
	// ResumeTimeout is the process's timeout for the first responses of resumed streams.
	ResumeTimeout *ResumeTimeout
	Metrics       *Metrics
	// GiveUpAfter is how long Run continues without a response before it returns [ErrSilent], and
	// with nothing but errors before it returns [ErrFailing]; 0 means forever.
	GiveUpAfter time.Duration
}

// ErrSilent reports a source that has not responded for too long. Another process may be able to
// reach it.
var ErrSilent = errors.New("MongoDB has not answered for too long")

// Reader reads one collection.
type Reader struct {
	collection *mongo.Collection
	config     Config
	log        *slog.Logger
	open       atomic.Bool
	tokenless  atomic.Bool
	// firstAnswer is how long the last first response after a resume took, in nanoseconds; 0: there
	// was none.
	firstAnswer atomic.Int64
	// current is when the server last had nothing more to return, in nanoseconds of Unix time; 0:
	// never.
	current atomic.Int64
}

// New returns a reader. It requests nothing before Run.
func New(collection *mongo.Collection, config Config, log *slog.Logger) *Reader {
	return &Reader{collection: collection, config: config, log: log}
}

// Reading reports whether the change stream is open. Safe for concurrent use.
func (r *Reader) Reading() bool { return r.open.Load() }

// FirstAnswer returns how long MongoDB took from opening the change stream after the checkpoint to
// its first response, the last time, or 0 if there was none. Safe for concurrent use.
func (r *Reader) FirstAnswer() time.Duration { return time.Duration(r.firstAnswer.Load()) }

// Current returns when the server last reported that there is nothing after what it has returned,
// by this machine's clock. It is zero if it has not since the stream was opened. Safe for
// concurrent use.
func (r *Reader) Current() time.Time {
	if at := r.current.Load(); at != 0 {
		return time.Unix(0, at)
	}
	return time.Time{}
}

// Tokenless reports whether the deployment returns no token before a new stream's first event. Safe
// for concurrent use.
func (r *Reader) Tokenless() bool { return r.tokenless.Load() }

// Run reads what follows from until ctx ends (then it returns nil), the sink returns an error, or
// the stream cannot continue: [ErrHistoryLost], [ErrSnapshotRefused], [ErrSnapshotSettings],
// [ErrSnapshotTorn], [ErrSnapshotRepeats], [ErrBeginningLost], [ErrUnknownOperation],
// [ErrFragment], [ErrSettingsChanged], [ErrOtherDeployment], [ErrUnstableFilter], [ErrReplaced], or
// a permanent error of the server. Anything that may recover is retried, for at most GiveUpAfter
// ([ErrSilent], [ErrFailing]).
func (r *Reader) Run(ctx context.Context, from checkpoint.Progress, sink Sink) error {
	settings, err := r.config.SettingsHash(r.collection)
	if err != nil {
		return err
	}
	c := &cursor{
		batch: newBatchSizer(), timeout: newResponseTimeout(r.config.GiveUpAfter),
		reader: r, sink: sink, at: from, trySplit: true,
		numbering: numbering{epoch: r.config.Epoch, settings: settings, unstable: r.config.UnstableFilter()},
	}
	if err := c.numbering.check(from); err != nil {
		return err
	}
	c.backfill = newBackfillSource(r.collection, &r.config, settings)
	if c.backfilling() && c.at.Backfill.Settings != c.backfill.settings {
		return ErrSnapshotSettings
	}
	r.config.Metrics.backfill(from.Backfill)
	r.logServerVersion(ctx)
	backoff := retry.Backoff{Initial: 100 * time.Millisecond, Max: 5 * time.Second}
	for {
		began, opened := c.at, time.Now()
		err := c.follow(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if refusal, ok := errors.AsType[*permanentError](err); ok {
			return refusal.err
		}
		// Opening the stream is not progress: a server may fail at the next request, every time.
		if !bytes.Equal(began.ResumeToken, c.at.ResumeToken) || began.Position != c.at.Position || c.state.answered && time.Since(opened) > backoff.Max {
			c.disbelieved, c.errors = 0, errorHistory{}
			backoff.Reset()
		}
		remedy := c.remedyFor(err)
		if err := c.prepareRemedy(remedy, err); err != nil {
			return err
		}
		if remedy == reopen && err != nil && !errors.Is(err, errSnapshotChanged) {
			r.log.Warn("change stream interrupted; reopening it", telemetry.KeyError, err,
				telemetry.KeyAttempt, backoff.Attempts()+1, telemetry.KeyPosition, c.at.Position)
		}
		r.config.Metrics.reopenings.WithLabelValues(causeOf(err)).Inc()
		if backoff.Wait(ctx) != nil {
			return nil
		}
	}
}

// remedyFor returns how to react to an error of the stream, by all errors since the last progress.
func (c *cursor) remedyFor(err error) remedy {
	c.errors.record(err)
	remedy := classify(err, c.state)
	if remedy == fatal && mongodb.HasCode(err, mongodb.BSONObjectTooLarge) && c.trySplit && !c.splitting {
		remedy = reopen // with the stage that was left out because of a transient error
	}
	if c.resumesOlder(err) {
		remedy = reopen
	}
	if remedy == historyLost && c.mayBeMisresumed() && c.disbelieved < maxDisbelieved {
		c.disbelieved++
		remedy = reopen // as the driver should have done
	}
	switch {
	case remedy == reopen && c.errors.isPermanent():
		remedy = fatal
	case remedy == reopen && c.errors.unexplained >= oneByOneAfter:
		c.batch.oneByOne()
	}
	return remedy
}

// prepareRemedy prepares the cursor for the stream's next opening, or returns why the stream is not
// opened again.
func (c *cursor) prepareRemedy(remedy remedy, err error) error {
	config := &c.reader.config
	switch {
	case remedy == fatal && c.batch.oneByOne():
		// The error stands for a whole response: the events before the unreadable one are requested
		// one by one.
	case remedy == fatal:
		return explain(err, c.at.Position)
	case remedy == historyLost && config.Backfill.WhenLost:
		c.heals = true
	case remedy == historyLost && config.RestartWhenLost:
		c.reader.log.Error("history is lost; resuming from now: the changes in between are not published",
			telemetry.KeyPosition, c.at.Position, telemetry.KeyError, err)
		c.restart()
	case remedy == historyLost && len(c.at.ResumeToken) == 0 && !config.StartAt.IsZero():
		return fmt.Errorf("%w: %w", ErrBeginningLost, err)
	case remedy == historyLost:
		return c.historyLost(err)
	case config.GiveUpAfter == 0:
	case c.timeout.silentFor() >= config.GiveUpAfter:
		return fmt.Errorf("%w: %w", ErrSilent, err)
	case mongodb.Answered(err) && time.Since(c.errors.since) >= config.GiveUpAfter:
		return fmt.Errorf("%w: %w", ErrFailing, err)
	}
	return nil
}

// logServerVersion logs which features the server lacks, if its version is known.
func (r *Reader) logServerVersion(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
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
		r.log.Info("this version of MongoDB lacks features of later versions", telemetry.KeyVersion, version.String(), telemetry.KeyDescription, lacks)
	}
}

// permanentError is an error that reopening the stream cannot fix, whatever its code.
type permanentError struct{ err error }

func (r *permanentError) Error() string { return r.err.Error() }
func (r *permanentError) Unwrap() error { return r.err }
