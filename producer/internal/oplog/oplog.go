// Package oplog measures how much of a deployment's oplog lies before a stream's position: how much may be written at the source
// before the position falls off the oplog and changes are lost.
//
// Guaranteed: what cannot be known is said to be unknown, with the reason. Sampling costs one read of one entry of
// local.oplog.rs.
//
// Not guaranteed: a time that is left. The oplog is bounded by size; at the rate of the writes that it holds, the headroom
// is that time, and a burst of writes shortens it.
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

// Why the oldest entry is unknown.
var (
	// ErrForbidden: the user may not read the oplog.
	ErrForbidden = errors.New("needs read on local")
	// ErrAbsent: the deployment has no oplog that can be read, as behind a mongos and on what only speaks the protocol.
	ErrAbsent = errors.New("local.oplog.rs is not there to read on this deployment")
)

// Oldest is the time of the oldest entry of the oplog. Errors: [ErrForbidden], [ErrAbsent], or the server's.
func Oldest(ctx context.Context, client *mongo.Client) (bson.Timestamp, error) {
	var entry struct {
		TS bson.Timestamp `bson:"ts"`
	}
	// Of the primary: the other members' oplogs may begin elsewhere, and a stream reads where the driver reads.
	oplog := client.Database("local", options.Database().SetReadPreference(readpref.Primary())).Collection("oplog.rs")
	// A capped collection gives its documents in the order of their insertion where no other order is asked for.
	err := oplog.FindOne(ctx, bson.D{}, options.FindOne().SetProjection(bson.D{{Key: "ts", Value: 1}})).Decode(&entry)
	if errors.Is(err, mongo.ErrNoDocuments) {
		return entry.TS, ErrAbsent
	}
	switch {
	case mongodb.HasCode(err, mongodb.Unauthorized, mongodb.AtlasError):
		return entry.TS, ErrForbidden
	case mongodb.Answered(err) && !mongodb.Passes(err): // a mongos refuses all of local (20), whoever asks
		return entry.TS, fmt.Errorf("%w: %w", ErrAbsent, err)
	}
	return entry.TS, err
}

// Reaches says whether the oplog reaches back to a time, so that everything that was changed since can still be read. Where the oplog
// may not be read, a change stream of the collection that begins at that time tells; told spares that where the deployment would have said
// so already. The error is the server's: nothing is known.
func Reaches(ctx context.Context, collection *mongo.Collection, at bson.Timestamp, told bool) (bool, error) {
	oldest, err := Oldest(ctx, collection.Database().Client())
	switch {
	case err == nil:
		return !oldest.After(at), nil
	case !errors.Is(err, ErrForbidden) && !errors.Is(err, ErrAbsent):
		return false, fmt.Errorf("look how far the oplog reaches back: %w", err)
	case told:
		return true, nil
	}
	// Its first answer holds one event at most: what comes of it is not read.
	stream, err := collection.Watch(ctx, mongo.Pipeline{}, options.ChangeStream().SetBatchSize(1).SetMaxAwaitTime(100*time.Millisecond).SetStartAtOperationTime(&at))
	if err == nil {
		stream.TryNext(ctx) // servers refuse some beginnings only then
		err = stream.Err()
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = stream.Close(closing)
	}
	if mongodb.HasCode(err, mongodb.ChangeStreamHistoryLost, mongodb.ChangeStreamFatalError, mongodb.CappedPositionLost) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("open a change stream at a time to see how far the oplog reaches back: %w", err)
	}
	return true, nil
}

const (
	sampleInterval = 10 * time.Second
	// maxSampleAge without a sample the last one says nothing any more.
	maxSampleAge = time.Minute
	// forbiddenDelay is the pause after a refusal, which only people change.
	forbiddenDelay = 5 * time.Minute
)

// Sampler keeps an eye on the oldest entry. The zero value has seen nothing.
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
		default: // away: the last sample stands until it is too old
		}
		if retry.Sleep(ctx, pause) != nil {
			return
		}
	}
}

// Headroom is how far the oldest entry lies behind a position, in seconds of the source's clock; at 0 and below the
// history is lost. Where it is unknown, note says why.
func (s *Sampler) Headroom(position bson.Timestamp) (seconds int64, note string) {
	last := s.last.Load()
	switch {
	case last == nil:
		return 0, "not looked yet"
	case last.err != nil:
		return 0, last.err.Error()
	case time.Since(last.at) > maxSampleAge:
		return 0, "MongoDB does not answer"
	case position.IsZero():
		return 0, "the position tells no time"
	}
	return int64(position.T) - int64(last.oldest.T), ""
}
