package sim

import (
	"context"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/sluice-cdc/sluice/tests/internal/witness"
)

// write commits the workload: bursts of events of a few hot aggregates and many cold ones, over the length of the run.
// It goes on through whatever happens to MongoDB, and commits every event once.
func (w *world) write(ctx context.Context, random *rand.Rand) {
	versions := map[string]int64{}
	gap := w.settings.Length / time.Duration(w.settings.Events/8+1)
	for n := 0; n < w.settings.Events; {
		for range min(1+random.IntN(15), w.settings.Events-n) {
			n++
			aggregate := fmt.Sprintf("hot-%d", random.IntN(w.settings.Hot))
			if random.IntN(2) == 0 {
				aggregate = fmt.Sprintf("cold-%d", random.IntN(w.settings.Cold))
			}
			versions[aggregate]++
			w.insert(ctx, aggregate, versions[aggregate], fmt.Sprintf("Kind%d", random.IntN(3)))
		}
		pause(ctx, time.Duration(random.Int64N(int64(2*gap))))
	}
}

// streamOf numbers the stream that carries an aggregate.
func (w *world) streamOf(aggregate string) int {
	return int(crc32.ChecksumIEEE([]byte(aggregate))) % w.settings.Streams
}

func (w *world) insert(ctx context.Context, aggregate string, version int64, kind string) {
	at := occurred(aggregate, version)
	w.record.Commit(aggregate, version, kind)
	document := bson.D{
		{Key: "_id", Value: at},
		{Key: "aggregateId", Value: aggregate},
		{Key: "version", Value: version},
		{Key: "type", Value: kind},
		{Key: "occurredAt", Value: at},
	}
	events := w.client.Database(database).Collection(collections[w.streamOf(aggregate)])
	for {
		_, err := events.InsertOne(ctx, document)
		if err == nil || driver.IsDuplicateKeyError(err) { // an answer may have been lost
			return
		}
		if ctx.Err() != nil {
			return
		}
		pause(ctx, 100*time.Millisecond)
	}
}

// occurred is when an event says that it occurred, and its _id.
func occurred(aggregate string, version int64) string {
	return fmt.Sprintf("%s@%d", aggregate, version)
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
	return w.client.Database("readmodel").Collection(w.settings.Projection)
}

// observe records one change of a document.
func (w *world) observe(change bson.Raw, at time.Time) {
	if o, ok := witness.Timeline(change, at); ok {
		w.record.Observe(o)
	}
}
