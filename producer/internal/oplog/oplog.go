// Package oplog measures how far a deployment's oplog reaches back before a stream's position: how
// much may be written at the source before the position leaves the oplog and changes are lost.
//
// Guaranteed: an unknown value is reported as unknown, with the reason. Sampling costs one read of
// one entry of local.oplog.rs.
//
// Not guaranteed: the remaining time. The oplog is limited by size. At the rate of its present
// writes, the headroom is that time, and a burst of writes shortens it.
package oplog

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"

	"github.com/sluice-cdc/sluice/shared/mongodb"
	"github.com/sluice-cdc/sluice/shared/retry"
)

// Reasons why the oldest entry is unknown.
var (
	// ErrForbidden: the user may not read the oplog.
	ErrForbidden = errors.New("needs read on local")
	// ErrAbsent: the deployment has no readable oplog, as behind a mongos and on
	// protocol-compatible databases.
	ErrAbsent = errors.New("local.oplog.rs cannot be read on this deployment")
)

// Oldest returns the time of the oldest entry of the oplog. Errors: [ErrForbidden], [ErrAbsent], or
// the server's.
func Oldest(ctx context.Context, client *mongo.Client) (bson.Timestamp, error) {
	var entry struct {
		TS bson.Timestamp `bson:"ts"`
	}
	// From the primary: the oplogs of other members may begin elsewhere, and a stream reads where
	// the driver reads.
	oplog := client.Database("local", options.Database().SetReadPreference(readpref.Primary())).Collection("oplog.rs")
	// A capped collection returns its documents in insertion order by default.
	err := oplog.FindOne(ctx, bson.D{}, options.FindOne().SetProjection(bson.D{{Key: "ts", Value: 1}})).Decode(&entry)
	switch {
	case errors.Is(err, mongo.ErrNoDocuments):
		return entry.TS, ErrAbsent
	case mongodb.HasCode(err, mongodb.Unauthorized, mongodb.AtlasError):
		return entry.TS, ErrForbidden
	case mongodb.Answered(err) && !mongodb.Passes(err): // a mongos refuses all of local (code 20) to every user
		return entry.TS, fmt.Errorf("%w: %w", ErrAbsent, err)
	}
	return entry.TS, err
}

// Reaches reports whether the oplog reaches back to a time, so that everything changed since can
// still be read. If the oplog may not be read, it opens a change stream of the collection that
// begins at that time; reported is true if the deployment would already have reported lost history,
// and makes that unnecessary. An error is the server's, and means that the answer is unknown.
func Reaches(ctx context.Context, collection *mongo.Collection, at bson.Timestamp, reported bool) (bool, error) {
	oldest, err := Oldest(ctx, collection.Database().Client())
	switch {
	case err == nil:
		return !oldest.After(at), nil
	case !errors.Is(err, ErrForbidden) && !errors.Is(err, ErrAbsent):
		return false, fmt.Errorf("check how far the oplog reaches back: %w", err)
	case reported:
		return true, nil
	}
	// Its first response holds at most one event, which is not read.
	stream, err := collection.Watch(ctx, mongo.Pipeline{}, options.ChangeStream().SetBatchSize(1).SetMaxAwaitTime(100*time.Millisecond).SetStartAtOperationTime(&at))
	if err == nil {
		mongodb.TryFirst(ctx, stream) // servers refuse some start times only then
		err = stream.Err()
		mongodb.CloseCursor(ctx, stream)
	}
	if mongodb.HasCode(err, mongodb.ChangeStreamHistoryLost, mongodb.ChangeStreamFatalError, mongodb.CappedPositionLost) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("open a change stream to check how far the oplog reaches back: %w", err)
	}
	return true, nil
}

const (
	sampleInterval = 10 * time.Second
	// maxSampleAge is how long a sample is valid.
	maxSampleAge = time.Minute
	// forbiddenDelay is the pause after a refusal, which only an operator can change.
	forbiddenDelay = 5 * time.Minute
)

// Sampler samples the oldest entry. The zero value has no sample.
type Sampler struct{ last atomic.Pointer[sample] }

type sample struct {
	oldest bson.Timestamp
	err    error
	at     time.Time
}

// Run samples until ctx ends.
func (s *Sampler) Run(ctx context.Context, client *mongo.Client) {
	for {
		pause := sampleInterval
		bounded, cancel := context.WithTimeout(ctx, sampleInterval)
		oldest, err := Oldest(bounded, client)
		cancel()
		switch {
		case err == nil, errors.Is(err, ErrAbsent), errors.Is(err, ErrForbidden):
			s.last.Store(&sample{oldest, err, time.Now()})
			if err != nil {
				pause = forbiddenDelay
			}
		default: // unreachable: the last sample stays valid until it is too old
		}
		if retry.Sleep(ctx, pause) != nil {
			return
		}
	}
}

// Headroom returns how far the oldest entry is behind a position, in seconds of the source's clock;
// at 0 and below, history is lost. If it is unknown, note gives the reason.
func (s *Sampler) Headroom(position bson.Timestamp) (seconds int64, note string) {
	last := s.last.Load()
	switch {
	case last == nil:
		return 0, "not measured yet"
	case last.err != nil:
		return 0, last.err.Error()
	case time.Since(last.at) > maxSampleAge:
		return 0, "MongoDB does not answer"
	case position.IsZero():
		return 0, "the position contains no time"
	}
	return int64(position.T) - int64(last.oldest.T), ""
}
