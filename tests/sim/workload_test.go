package sim

import (
	"context"
	"fmt"
	"hash/crc32"
	"strings"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/sluice-cdc/sluice/tests/internal/history"
	"github.com/sluice-cdc/sluice/tests/internal/witness"
	"github.com/sluice-cdc/sluice/tests/sim/internal/plan"
)

// write commits the workload. It continues whatever happens to MongoDB, and commits every event
// once.
func (w *world) write(ctx context.Context) {
	for _, burst := range w.plan.Bursts {
		pause(ctx, burst.At.Duration-time.Since(w.began))
		for _, e := range burst.Events {
			w.append(ctx, e)
		}
	}
}

// streamOf returns the stream of a collection; empty without one.
func streamOf(collection string) string {
	if collection == "" {
		return ""
	}
	return plan.Database + "." + collection
}

// collectionOf returns the collection of an aggregate that only one stream carries.
func (w *world) collectionOf(aggregate string) string {
	return plan.Collections[int(crc32.ChecksumIEEE([]byte(aggregate)))%w.plan.Settings.Streams]
}

// insert commits an event of an aggregate that only one stream carries.
func (w *world) insert(ctx context.Context, aggregate string, version int64, kind string) {
	w.insertOf(ctx, history.Commit{Aggregate: aggregate, Version: version}, kind)
}

func (w *world) insertOf(ctx context.Context, c history.Commit, kind string) {
	kind = w.kindOf(kind, c.Version)
	at := occurred(c, kind)
	w.record.Commit(c, kind)
	var id any = at
	if w.plan.Settings.Documents == plan.Compound {
		id = compoundID(c.Aggregate, c.Version)
	}
	document := bson.D{
		{Key: "_id", Value: id},
		{Key: "aggregateId", Value: c.Aggregate},
		{Key: "version", Value: c.Version},
		{Key: "type", Value: kind},
		{Key: "occurredAt", Value: at},
	}
	w.commit(ctx, func() error {
		_, err := w.source(c).InsertOne(ctx, w.pad(document))
		return err
	})
}

// source returns the collection in which an event is committed.
func (w *world) source(c history.Commit) *driver.Collection {
	name := w.collectionOf(c.Aggregate)
	if c.Stream != "" {
		_, name, _ = strings.Cut(c.Stream, ".")
	}
	return w.client.Database(plan.Database).Collection(name)
}

// commit writes until MongoDB has confirmed it. The write must recognise that it was executed and
// its answer got lost.
func (w *world) commit(ctx context.Context, write func() error) {
	for {
		err := write()
		if err == nil || driver.IsDuplicateKeyError(err) { // an answer may have been lost
			return
		}
		if ctx.Err() != nil {
			return
		}
		pause(ctx, 100*time.Millisecond)
	}
}

// occurred returns the time in an event, and as a rule the _id of one that is inserted.
func occurred(c history.Commit, kind string) string {
	if kind == gone {
		return gone
	}
	return strings.TrimPrefix(fmt.Sprintf("%s/%s@%d", c.Stream, c.Aggregate, c.Version), "/")
}

// watch records every change of the read model, through any failure of the server, until ctx ends.
func (w *world) watch(ctx context.Context, watched chan<- struct{}) {
	var follower witness.Watcher
	open := sync.OnceFunc(func() { close(watched) })
	for ctx.Err() == nil {
		err := follower.Follow(ctx, w.readModel(), open, w.observe)
		if err != nil && ctx.Err() == nil {
			w.trace.add("the witness of the read model goes on after: %v", err)
		}
		pause(ctx, 20*time.Millisecond)
	}
}

func (w *world) readModel() *driver.Collection {
	return w.client.Database(readModel).Collection(w.plan.Settings.Projection)
}

// observe records one change of a document.
func (w *world) observe(change bson.Raw, at time.Time) {
	if o, ok := witness.Timeline(change, at); ok {
		w.record.Observe(o)
	}
}
