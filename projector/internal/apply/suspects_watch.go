package apply

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
	"golang.org/x/sync/semaphore"

	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/telemetry"
)

const (
	// watchInterval is how often a process shows that it runs, and checks which others have ended.
	watchInterval = 15 * time.Second
	// goneAfter is how long a process may not have shown itself while it runs.
	goneAfter = time.Minute
	// cautious is how long events in hand are recorded after a process has ended.
	cautious = 15 * time.Minute
	// freshFor bounds the age of what is known of suspects while events in hand are recorded.
	freshFor = time.Second
)

// Watch finds the events whose projection ends the process of its projector: a recursion
// without end, which Go cannot recover from, or memory that grows until the process is killed.
//
// Each projector registers its process in the collection <projection>_processes of the read model,
// shows that it runs, and removes its record when it stops. A process that was not removed and no
// longer runs has ended otherwise. Once one has, projectors record the events that they are about
// to give to the projection, and remove that record when the projection has returned. What such an
// ended process had in hand is suspect, and is given to the projection alone. An event that was
// alone in hand when a process ended, twice, is condemned: it is not given to the projection again,
// and its aggregate is to be parked.
//
// Guaranteed: while no process has ended without stopping in the last quarter of an hour, nothing
// is recorded but that the process runs. An event is condemned only if two processes have ended
// without stopping while the projection had it and no other event, or had kept it for long. A stop,
// a lost lock or a redelivery leaves no record.
//
// Not guaranteed: how many processes end before an event is condemned. It is about four for each
// replica, since each may meet the event before another one's end is known.
//
// A Watch is one process's part. A nil Watch suspects nothing. It is safe for concurrent use.
type Watch struct {
	collection *mongo.Collection
	self       process
	log        *slog.Logger

	// trial is held in part while the projection has events, and as a whole while a suspect is
	// tried.
	trial *semaphore.Weighted
	known atomic.Pointer[knowledge] // nil: no process has ended
	seen  atomic.Int64              // when the process showed itself, by the server's clock, in milliseconds
	off   atomic.Bool               // the collection cannot be used

	ended chan struct{} // closed by End
	end   func()        // closes ended, once

	mu        sync.Mutex
	unremoved []bson.ObjectID // records that could not be removed; guarded by mu
}

// knowledge is what is known of processes that have ended. It does not change.
type knowledge struct {
	read      time.Time
	cautious  bool                // events in hand are recorded
	suspects  map[string]*suspect // by message id: to be tried alone
	condemned map[string]*suspect // by aggregate
}

// NewWatch returns the watch of a process. Nothing is read or written before [Watch.Begin].
func NewWatch(readModel *mongo.Database, p projection.Projection, instance string, log *slog.Logger) *Watch {
	host, _ := os.Hostname() // empty if it has none
	w := &Watch{
		// A record is to survive this process, not the database's primary.
		collection: readModel.Collection(WatchCollection(p), options.Collection().
			SetWriteConcern(writeconcern.W1()).SetReadConcern(readconcern.Local()).SetReadPreference(readpref.Primary())),
		self:  process{ID: bson.NewObjectID(), Instance: instance, Host: host, PID: os.Getpid()},
		log:   log,
		trial: semaphore.NewWeighted(wholeTrial),
		ended: make(chan struct{}),
	}
	w.end = sync.OnceFunc(func() { close(w.ended) })
	return w
}

// WatchCollection returns the name of the collection in which a projection's projectors are
// registered.
func WatchCollection(p projection.Projection) string { return p.Name() + "_processes" }

// Begin registers the process, and learns which others have ended, also the one in whose place it
// runs.
func (w *Watch) Begin(ctx context.Context) error { return w.look(ctx, true) }

// Disable makes the watch suspect nothing from now on.
func (w *Watch) Disable() {
	w.off.Store(true)
	w.known.Store(nil)
}

// Run shows that the process runs, and checks which others have ended, until ctx ends.
func (w *Watch) Run(ctx context.Context) {
	ticker := time.NewTicker(watchInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if w.off.Load() {
			return
		}
		attempt, cancel := context.WithTimeout(ctx, watchInterval)
		err := w.look(attempt, false)
		cancel()
		if err != nil && ctx.Err() == nil {
			w.log.Debug("processes of projectors not read", telemetry.KeyError, err)
		}
	}
}

// End removes what is recorded of the process, which stops. Nothing is recorded afterwards.
func (w *Watch) End(ctx context.Context) error {
	w.end()
	if w.off.Swap(true) {
		return nil
	}
	return w.unregister(ctx, w.self)
}

// unregister removes the records of a process: what it had in hand first, because without the
// record of the process nothing would remove that.
func (w *Watch) unregister(ctx context.Context, p process) error {
	_, err := w.collection.DeleteMany(ctx, bson.D{{Key: "process", Value: p.ID}})
	if err == nil {
		_, err = w.collection.DeleteOne(ctx, bson.D{{Key: "_id", Value: p.ID}})
	}
	return w.failed("write", err)
}

// look shows that this process runs, and judges those that have ended.
func (w *Watch) look(ctx context.Context, begins bool) error {
	var self process
	err := w.collection.FindOneAndUpdate(ctx, bson.D{{Key: "_id", Value: w.self.ID}}, bson.D{
		{Key: "$set", Value: bson.D{{Key: "kind", Value: kindProcess}, {Key: "instance", Value: w.self.Instance}, {Key: "host", Value: w.self.Host}, {Key: "pid", Value: w.self.PID}}},
		{Key: "$currentDate", Value: bson.D{{Key: "seen", Value: true}}},
	}, options.FindOneAndUpdate().SetUpsert(true).SetReturnDocument(options.After)).Decode(&self)
	if err != nil {
		return w.failed("write", err)
	}
	w.seen.Store(self.Seen.UnixMilli())
	if err := w.remove(ctx); err != nil {
		return err
	}
	var processes []process
	if err := w.find(ctx, "kind", kindProcess, &processes); err != nil {
		return err
	}
	for _, p := range processes {
		if p.ID != w.self.ID && p.ended(&self, begins) {
			if err := w.bury(ctx, p); err != nil {
				return err
			}
		}
	}
	return w.learn(ctx)
}

// bury makes suspects of the events that an ended process had in hand, and removes its records. It
// may be interrupted, and repeated by another process at the same time.
func (w *Watch) bury(ctx context.Context, p process) error {
	var left []inHandRecord
	if err := w.find(ctx, "process", p.ID, &left); err != nil {
		return err
	}
	var models []mongo.WriteModel
	for _, l := range left {
		for _, e := range l.Events {
			update := bson.D{{Key: "$set", Value: bson.D{
				{Key: "kind", Value: kindSuspect},
				{Key: "aggregate", Value: e.Aggregate},
				{Key: "stream", Value: e.Stream},
				{Key: "position", Value: e.Position},
			}}}
			if l.Alone {
				update = append(update, bson.E{Key: "$addToSet", Value: bson.D{{Key: "alone", Value: l.ID}}})
			}
			models = append(models, mongo.NewUpdateOneModel().SetUpsert(true).SetFilter(bson.D{{Key: "_id", Value: e.MessageID}}).SetUpdate(update))
		}
	}
	models = append(models, mongo.NewUpdateOneModel().SetUpsert(true).SetFilter(bson.D{{Key: "_id", Value: kindCaution}}).
		SetUpdate(bson.D{{Key: "$max", Value: bson.D{{Key: "until", Value: w.now().Add(cautious)}}}}))
	if _, err := w.collection.BulkWrite(ctx, models); err != nil {
		return w.failed("write", err)
	}
	if err := w.unregister(ctx, p); err != nil {
		return err
	}
	w.log.Warn("a projector has ended without stopping; events in hand are recorded for some time, to find one that ends its process",
		"ended", p.Instance, telemetry.KeyFor, cautious.String())
	return nil
}

// learn reads the suspects.
func (w *Watch) learn(ctx context.Context) error {
	var caution struct {
		Until time.Time `bson:"until"`
	}
	err := w.collection.FindOne(ctx, bson.D{{Key: "_id", Value: kindCaution}}).Decode(&caution)
	if errors.Is(err, mongo.ErrNoDocuments) {
		w.known.Store(nil) // no process has ever ended
		return nil
	}
	if err != nil {
		return w.failed("read", err)
	}
	var suspects []suspect
	if err := w.find(ctx, "kind", kindSuspect, &suspects); err != nil {
		return err
	}
	k := &knowledge{
		read: time.Now(), cautious: caution.Until.After(w.now()),
		suspects: make(map[string]*suspect), condemned: make(map[string]*suspect),
	}
	for i := range suspects {
		if s := &suspects[i]; s.condemned() {
			k.condemned[s.Aggregate] = s
		} else {
			k.suspects[s.MessageID], k.cautious = s, true
		}
	}
	if !k.cautious && len(k.condemned) == 0 {
		k = nil
	}
	w.known.Store(k)
	return nil
}

// find reads the records whose field has this value.
func (w *Watch) find(ctx context.Context, field string, value, into any) error {
	cursor, err := w.collection.Find(ctx, bson.D{{Key: field, Value: value}})
	if err == nil {
		err = cursor.All(ctx, into)
	}
	return w.failed("read", err)
}

// failed returns the error of an access to the collection; nil without one.
func (w *Watch) failed(verb string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s: %w", verb, w.collection.Name(), err)
}

// suspected returns what is known of processes that have ended, read again if it is old and events
// in hand are recorded; nil if there is nothing to know.
func (w *Watch) suspected(ctx context.Context) (*knowledge, error) {
	if w == nil {
		return nil, nil
	}
	if k := w.known.Load(); k != nil && k.cautious && time.Since(k.read) > freshFor {
		if err := w.learn(ctx); err != nil {
			return nil, err
		}
	}
	return w.known.Load(), nil
}

func (w *Watch) now() time.Time { return time.UnixMilli(w.seen.Load()) }
