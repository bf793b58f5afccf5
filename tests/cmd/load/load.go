package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-cdc/sluice/tests/internal/history"
	"github.com/sluice-cdc/sluice/tests/internal/witness"
	"github.com/sluice-cdc/sluice/tests/internal/workload"
)

// mine begins the aggregate ids of every load test: other documents in the collection belong to an
// application.
const mine = "load-"

// Load describes the load for a pipeline, and where the pipeline is. The pipeline is already
// running, with the projection timeline.
type Load struct {
	Source    *mongo.Collection // watched by the producer
	ReadModel *mongo.Collection // of the timeline

	Rate       float64       // events a second; 0: as fast as the source accepts them
	Aggregates int           // that change in turn
	Size       int           // bytes of each event's data
	For        time.Duration // how long events are inserted
	Patience   time.Duration // how long no event may become visible before the test fails
}

// errForeign means that an application uses the collection.
var errForeign = errors.New("the collection holds documents that are no load test's: a load test writes, and what it writes is published " +
	"to everybody; give it a deployment of its own")

// Run inserts the load, waits until everything is visible, and compares the read model with the
// source.
func (l Load) Run(ctx context.Context) (r Report, err error) {
	foreign := l.Source.FindOne(ctx, bson.D{{Key: "aggregateId", Value: bson.D{{Key: "$not", Value: bson.Regex{Pattern: "^" + mine}}}}})
	switch err := foreign.Err(); {
	case err == nil:
		return r, errForeign
	case !errors.Is(err, mongo.ErrNoDocuments):
		return r, fmt.Errorf("read the source: %w", err)
	}
	began := time.Now()
	prefix := mine + strconv.FormatInt(began.UnixNano(), 36) + "-"
	rec := history.NewRecorder()
	group, working := errgroup.WithContext(ctx)
	watching, stopWatching := context.WithCancel(working)
	defer stopWatching()
	opened := make(chan struct{})
	group.Go(func() error {
		return witness.Watch(watching, l.ReadModel, func() { close(opened) }, func(change bson.Raw, at time.Time) {
			if o, ok := witness.Timeline(change, at); ok && o.Events >= 0 && strings.HasPrefix(o.Aggregate, prefix) {
				rec.Observe(o)
			}
		})
	})
	group.Go(func() error {
		defer stopWatching()
		select {
		case <-opened:
		case <-working.Done():
			return context.Cause(working)
		}
		loader := workload.Loader{Collection: l.Source, Rate: l.Rate, Sending: func(batch []workload.Event, at time.Time) {
			rec.Commit(workload.Commits(batch, at)...)
		}}
		if _, err := loader.Run(working, l.events(prefix)); err != nil {
			return err
		}
		return l.arrive(working, rec)
	})
	if err := group.Wait(); err != nil && !errors.Is(err, errStuck) {
		return r, err
	} else if err != nil {
		r.GivenUp = err.Error()
	}
	compared, err := l.compare(ctx)
	if err != nil {
		return r, err
	}
	r.fill(l, rec, compared)
	return r, nil
}

// events returns the events of one test: each aggregate in turn, for as long as the test lasts.
func (l Load) events(prefix string) iter.Seq[workload.Event] {
	data, _ := json.Marshal(map[string]string{"padding": strings.Repeat("x", max(0, l.Size-len(`{"padding":""}`)))}) // a text always marshals
	return func(yield func(workload.Event) bool) {
		end := time.Now().Add(l.For)
		most := int(l.Rate * l.For.Seconds())
		for n := 0; l.Rate == 0 && time.Now().Before(end) || n < most; n++ {
			e := workload.Event{
				AggregateID: prefix + strconv.Itoa(n%l.Aggregates), Version: int64(n/l.Aggregates) + 1, Type: "Loaded",
				OccurredAt: strconv.Itoa(n), Data: data,
			}
			if !yield(e) {
				return
			}
		}
	}
}

var errStuck = errors.New("nothing more becomes visible")

// arrive waits until everything is visible.
func (l Load) arrive(ctx context.Context, rec *history.Recorder) error {
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		counts := rec.Counts()
		switch {
		case counts.Visible == counts.Committed:
			return nil
		case time.Since(counts.LastMove) > l.Patience:
			return fmt.Errorf("%w for %s: %d of %d events", errStuck, l.Patience, counts.Visible, counts.Committed)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// compare folds the source, which contains only events of load tests, and compares the read model
// with it.
func (l Load) compare(ctx context.Context) (history.Comparison, error) {
	expected, err := workload.Timeline(ctx, l.Source)
	if err != nil {
		return history.Comparison{}, err
	}
	actual, err := witness.ReadTimeline(ctx, l.ReadModel)
	if err != nil {
		return history.Comparison{}, err
	}
	return history.Compare(expected, actual), nil
}
