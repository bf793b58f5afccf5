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

	"github.com/sluice-cdc/sluice/tests/internal/history"
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
	w.mu.Lock()
	w.run.Committed = append(w.run.Committed, history.Commit{Aggregate: aggregate, Version: version, At: time.Now()})
	w.kinds = append(w.kinds, kind)
	w.mu.Unlock()
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

// fold is the read model of the committed events that are to be seen, and how many there are of each type.
func (w *world) fold() (timelines, totals *history.Model) {
	timelines, totals = &history.Model{}, &history.Model{}
	w.mu.Lock()
	defer w.mu.Unlock()
	visible, counts := w.run.Visible(), map[string]int64{}
	for n, c := range w.run.Committed {
		if visible(c.Aggregate, c.Version) {
			timelines.Fold(c.Aggregate, c.Version, w.kinds[n], occurred(c.Aggregate, c.Version))
			counts[w.kinds[n]]++
		}
	}
	for kind, n := range counts {
		totals.Put(kind, history.Summary{Events: n})
	}
	return timelines, totals
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
	o, ok := witness.Timeline(change, at)
	if !ok {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.run.Observed = append(w.run.Observed, o)
	if o.Events >= 0 {
		w.visible[o.Aggregate] = o.Events
	}
}

// seen counts what the read model has been seen to hold.
func (w *world) seen() (committed, visible int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range w.visible {
		visible += n
	}
	return int64(len(w.run.Committed)), visible
}

// publishedCount is how many different messages the broker has accepted.
func (w *world) publishedCount() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return int64(len(w.published))
}
