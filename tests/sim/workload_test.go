package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/tests/internal/history"
)

// write commits the workload: bursts of events of a few hot aggregates and many cold ones, over the length of the run.
// It goes on through whatever happens to MongoDB, and commits every event once.
func (w *world) write(ctx context.Context, random *rand.Rand) {
	events := w.client.Database("shop").Collection("events")
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
			w.insert(ctx, events, aggregate, versions[aggregate], fmt.Sprintf("Kind%d", random.IntN(3)))
		}
		pause(ctx, time.Duration(random.Int64N(int64(2*gap))))
	}
}

func (w *world) insert(ctx context.Context, events *driver.Collection, aggregate string, version int64, kind string) {
	at := fmt.Sprintf("%s@%d", aggregate, version)
	w.mu.Lock()
	w.run.Committed = append(w.run.Committed, history.Commit{Aggregate: aggregate, Version: version, At: time.Now()})
	w.expected.Fold(aggregate, version, kind, at)
	w.mu.Unlock()
	document := bson.D{
		{Key: "_id", Value: at},
		{Key: "aggregateId", Value: aggregate},
		{Key: "version", Value: version},
		{Key: "type", Value: kind},
		{Key: "occurredAt", Value: at},
	}
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

// watch records every change of the read model, through any failure of the server, until ctx ends.
func (w *world) watch(ctx context.Context, watched chan<- struct{}) {
	var token bson.Raw
	for ctx.Err() == nil {
		if err := w.follow(ctx, &token, watched); err != nil && ctx.Err() == nil {
			w.trace.add("the witness of the read model goes on after: %v", err)
		}
		watched = nil
		pause(ctx, 20*time.Millisecond)
	}
}

func (w *world) follow(ctx context.Context, token *bson.Raw, watched chan<- struct{}) (err error) {
	o := options.ChangeStream()
	if *token != nil {
		o.SetResumeAfter(*token)
	}
	changes, err := w.client.Database("readmodel").Collection("timeline").Watch(ctx, driver.Pipeline{}, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, changes.Close(context.WithoutCancel(ctx))) }()
	*token = changes.ResumeToken()
	if watched != nil {
		close(watched)
	}
	for changes.Next(ctx) {
		*token = changes.ResumeToken()
		w.observe(changes.Current)
	}
	return changes.Err()
}

// observe records one change of a document, as that very change says it.
func (w *world) observe(change bson.Raw) {
	o := history.Observation{Events: -1, At: time.Now()}
	o.Aggregate, _ = change.Lookup("documentKey", "_id").StringValueOK()
	document, ok := change.Lookup("fullDocument").DocumentOK()
	if operation, _ := change.Lookup("operationType").StringValueOK(); operation == "delete" {
		o.Events = 0
	}
	if ok {
		o.Events, _ = document.Lookup("events").AsInt64OK()
		o.Position, _ = document.Lookup("_sluice", "position").StringValueOK()
	} else if updated, ok := change.Lookup("updateDescription", "updatedFields").DocumentOK(); ok {
		if n, ok := updated.Lookup("events").AsInt64OK(); ok {
			o.Events = n
		}
		if o.Position, ok = updated.Lookup("_sluice.position").StringValueOK(); !ok {
			o.Position, _ = updated.Lookup("_sluice", "position").StringValueOK()
		}
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

// readModel reads the timelines as they are.
func (w *world) readModel() *history.Model {
	cursor, err := w.client.Database("readmodel").Collection("timeline").Find(w.Context(), bson.D{})
	require.NoError(w, err)
	m := &history.Model{}
	for cursor.Next(w.Context()) {
		var d struct {
			ID     string           `bson:"_id"`
			Events int64            `bson:"events"`
			Types  map[string]int64 `bson:"types"`
			First  string           `bson:"firstOccurredAt"`
			Last   string           `bson:"lastOccurredAt"`
			Type   string           `bson:"lastType"`
		}
		require.NoError(w, cursor.Decode(&d))
		m.Put(d.ID, history.Summary{
			Events: d.Events, Types: d.Types, FirstOccurredAt: d.First, LastOccurredAt: d.Last, LastType: d.Type,
		})
	}
	require.NoError(w, cursor.Err())
	return m
}
