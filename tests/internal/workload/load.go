package workload

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/shared/mongodb"
	"github.com/sluice-cdc/sluice/shared/retry"
)

const (
	// maxBatch is how many events one insertMany carries.
	maxBatch = 500
	// tick is how often a paced load checks how many events are due, and a held load whether it may
	// continue.
	tick = 10 * time.Millisecond
	// patience is how long the database may refuse before a load fails.
	patience = 60 * time.Second
	// attemptTimeout bounds one insertMany.
	attemptTimeout = 10 * time.Second

	duplicateKey = 11000
	overflow     = 15 // nested too deeply
)

// Loader inserts events into a collection, in order, one insertMany at a time.
type Loader struct {
	Collection *mongo.Collection
	// Rate is the number of events per second; 0 means as fast as possible.
	Rate float64
	// Allowed returns how many events may have been inserted in total by now; it is called every
	// few milliseconds. Nil allows any number.
	Allowed func() int64
	// Sending is called with every batch just before it is written, at most once for an event.
	Sending func(batch []Event, at time.Time)
}

// Run inserts the events until they or ctx end, and returns how many were inserted. Errors of the
// database are retried for a minute; an event is never inserted twice, since a retry has the same
// _id.
func (l Loader) Run(ctx context.Context, events iter.Seq[Event]) (inserted int64, err error) {
	pull, stop := iter.Pull(events)
	defer stop()
	source := &ahead{pull: pull}
	source.fetch()
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	start := time.Now()
	for {
		due := int64(maxBatch)
		if l.Rate > 0 {
			due = int64(time.Since(start).Seconds()*l.Rate) + 1 - inserted
		}
		if l.Allowed != nil {
			due = min(due, l.Allowed()-inserted)
		}
		batch := source.take(min(due, maxBatch))
		if len(batch) > 0 {
			if err := l.insert(ctx, batch); err != nil {
				return inserted, fmt.Errorf("insert events %d to %d: %w", inserted+1, inserted+int64(len(batch)), err)
			}
			inserted += int64(len(batch))
		}
		if !source.more {
			return inserted, nil
		}
		if len(batch) == maxBatch && ctx.Err() == nil {
			continue // late, or unpaced: no reason to wait
		}
		select {
		case <-ctx.Done():
			return inserted, context.Cause(ctx)
		case <-ticker.C:
		}
	}
}

// ahead reads one event in advance, so that the end is known even while no event may be inserted.
type ahead struct {
	pull func() (Event, bool)
	next Event
	more bool
}

func (a *ahead) fetch() { a.next, a.more = a.pull() }

func (a *ahead) take(n int64) (batch []Event) {
	for ; n > 0 && a.more; n-- {
		batch = append(batch, a.next)
		a.fetch()
	}
	return batch
}

// insert writes a batch in order, and continues after an error with the first event that is not
// written.
func (l Loader) insert(ctx context.Context, batch []Event) error {
	documents := make([]bson.D, len(batch))
	for i, e := range batch {
		d, err := e.Document()
		if err != nil {
			return err
		}
		documents[i] = d
	}
	if l.Sending != nil {
		l.Sending(batch, time.Now())
	}
	backoff := retry.Backoff{Initial: 50 * time.Millisecond, Max: time.Second}
	deadline := time.Now().Add(patience)
	for {
		// What was passed to Sending is inserted, even if the load is stopped in the meantime.
		attempt, cancel := context.WithTimeout(context.WithoutCancel(ctx), attemptTimeout)
		_, err := l.Collection.InsertMany(attempt, documents, options.InsertMany().SetOrdered(true))
		cancel()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		// A document that already exists was written by the attempt whose answer was lost, as were
		// those before it.
		if at, ok := alreadyThere(err); ok {
			documents = documents[at+1:]
			if len(documents) == 0 {
				return nil
			}
			continue
		}
		if refused(err) || time.Now().After(deadline) {
			return err
		}
		if waitErr := backoff.Wait(ctx); waitErr != nil {
			return errors.Join(waitErr, err)
		}
	}
}

// refused reports whether the database refuses the document itself, so that a retry cannot succeed.
func refused(err error) bool {
	if mongodb.HasCode(err, overflow) {
		return true
	}
	bulk, ok := errors.AsType[mongo.BulkWriteException](err)
	return ok && len(bulk.WriteErrors) > 0
}

// alreadyThere returns the index of the document that an ordered insert refused as a duplicate;
// there is only one.
func alreadyThere(err error) (index int, ok bool) {
	bulk, ok := errors.AsType[mongo.BulkWriteException](err)
	if !ok || len(bulk.WriteErrors) != 1 || bulk.WriteErrors[0].Code != duplicateKey {
		return 0, false
	}
	return bulk.WriteErrors[0].Index, true
}
