package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/shared/retry"
	"github.com/sluice-cdc/sluice/tests/emulator"
	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
)

const (
	database   = "shop"
	collection = "events"
	readModel  = "readmodel"
	padding    = 1000 // bytes of an event beside its fields

	// patience bounds the wait for the next step of a peer. What has not happened by then is
	// reported as missing.
	patience = 2 * time.Minute
)

// event identifies one event.
type event struct {
	aggregate string
	version   int64
}

// world is the servers of one measurement, and what the broker has accepted there.
type world struct {
	stack   *emulator.Stack
	mongo   *mongo.Client
	uri     string
	folder  string // of logs and tokens
	serving sync.WaitGroup
	end     context.CancelFunc

	mu      sync.Mutex // guards the rest
	prefix  string     // of the aggregates that are counted
	sent    int        // sends, also those that duplicate detection dropped
	dropped int
	stored  map[event]int
	at      map[event]time.Time
	highest map[string]int64
	behind  int // stored after a later event of the aggregate
	first   time.Time
	last    time.Time
}

func newWorld(ctx context.Context, uri string) (_ *world, err error) {
	stack, err := emulator.New(ctx, emulator.Options{})
	if err != nil {
		return nil, err
	}
	w := &world{stack: stack, uri: uri}
	serving, end := context.WithCancel(context.WithoutCancel(ctx))
	w.end = end
	w.serving.Go(func() { _ = stack.Run(serving) })
	defer func() {
		if err != nil {
			_ = w.close(ctx)
		}
	}()
	if w.folder, err = os.MkdirTemp("", "sluice-peers-"); err != nil {
		return nil, err
	}
	if w.mongo, err = mongo.Connect(options.Client().ApplyURI(uri)); err != nil {
		return nil, err
	}
	for _, name := range []string{database, readModel} {
		if err := w.mongo.Database(name).Drop(ctx); err != nil {
			return nil, fmt.Errorf("drop the database %s: %w", name, err)
		}
	}
	w.count("")
	stack.ServiceBus.Observe(w.accepted)
	return w, nil
}

func (w *world) close(ctx context.Context) error {
	var errs []error
	if w.mongo != nil {
		errs = append(errs, w.mongo.Disconnect(context.WithoutCancel(ctx)))
	}
	w.end()
	w.serving.Wait()
	return errors.Join(append(errs, os.RemoveAll(w.folder))...)
}

// count forgets what was accepted and counts the aggregates with the prefix from now on.
func (w *world) count(prefix string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.prefix, w.sent, w.dropped, w.behind = prefix, 0, 0, 0
	w.stored, w.at, w.highest = map[event]int{}, map[event]time.Time{}, map[string]int64{}
	w.first, w.last = time.Time{}, time.Time{}
}

// accepted records a message, within the broker's send.
func (w *world) accepted(a servicebus.Accepted) {
	now := time.Now()
	e := event{aggregate: a.SessionID, version: number(a.Properties[envelope.PropVersion])}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !strings.HasPrefix(e.aggregate, w.prefix) {
		return
	}
	if w.sent++; a.Duplicate {
		w.dropped++
		return
	}
	if w.first.IsZero() {
		w.first = now
	}
	if e.version < w.highest[e.aggregate] {
		w.behind++
	}
	w.highest[e.aggregate] = max(e.version, w.highest[e.aggregate])
	if w.stored[e]++; w.stored[e] == 1 {
		w.last, w.at[e] = now, now
	}
}

// number returns an integer property: clients encode one in different types of AMQP, as a string too.
func number(v any) int64 {
	n, _ := strconv.ParseInt(fmt.Sprint(v), 10, 64) // 0 is not among the versions
	return n
}

// distinct returns how many different events have been stored.
func (w *world) distinct() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.stored)
}

// errPatience means that something did not happen in time.
var errPatience = errors.New("timed out")

// until waits until done reports true, which it is asked every few milliseconds. The instances must
// not end meanwhile.
func (w *world) until(ctx context.Context, what string, done func() bool, running ...*instance) error {
	return w.within(ctx, patience, what, done, running...)
}

// within is like until for another time; the error is errPatience if that is over.
func (w *world) within(ctx context.Context, longest time.Duration, what string, done func() bool, running ...*instance) error {
	ctx, cancel := context.WithTimeoutCause(ctx, longest, errPatience)
	defer cancel()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for %s, %d events stored: %w", what, w.distinct(), context.Cause(ctx))
		}
		for _, i := range running {
			select {
			case <-i.ended:
				return fmt.Errorf("%s ended while this waited for %s:\n%s", i.cmd.Path, what, i.tail())
			default:
			}
		}
	}
	return nil
}

// publisher starts the n-th instance of a peer's publisher.
func (w *world) publisher(p peer, n int) (*instance, error) {
	return w.launch(p, p.publisher, n, "MONGODB_DATABASE="+database, "MONGODB_COLLECTION="+collection, "OPERATIONS=insert",
		"TOKEN_FILE="+filepath.Join(w.folder, fmt.Sprint("token-", n)))
}

// consumer starts a peer's consumer.
func (w *world) consumer(p peer) (*instance, error) {
	return w.launch(p, p.consumer, 0, "READ_MODEL_DATABASE="+readModel, "PROJECTION="+readModelCollection, "SERVICE_BUS_SUBSCRIPTION="+emulator.Subscription)
}

func (w *world) launch(p peer, command []string, n int, settings ...string) (*instance, error) {
	env := append(w.stack.Env(), "MONGODB_URI="+w.uri, "SERVICE_BUS_TOPIC="+emulator.Topic, "HTTP_ADDR=127.0.0.1:0",
		fmt.Sprint("CONTAINER_APP_REPLICA_NAME=peer-", n))
	return start(command, slices.Concat(env, settings, p.settings), w.folder)
}

// insert writes n events of the aggregates in turn.
func (w *world) insert(ctx context.Context, prefix string, n, aggregates int) error {
	documents := make([]any, 0, 1000)
	for i := range n {
		documents = append(documents, document(event{fmt.Sprintf("%s%06d", prefix, i%aggregates), int64(i/aggregates + 1)}))
		if len(documents) == cap(documents) || i == n-1 {
			if _, err := w.mongo.Database(database).Collection(collection).InsertMany(ctx, documents); err != nil {
				return fmt.Errorf("insert the backlog: %w", err)
			}
			documents = documents[:0]
		}
	}
	return nil
}

func document(e event) bson.D {
	return bson.D{
		{Key: "_id", Value: bson.NewObjectID()},
		{Key: "aggregateId", Value: e.aggregate},
		{Key: "version", Value: e.version},
		{Key: "type", Value: "Measured"},
		{Key: "occurredAt", Value: "2026-01-02T03:04:05Z"},
		{Key: "pad", Value: strings.Repeat("x", padding)},
	}
}

// prepare starts the peer, sees it publish an event, and stops it: it has a position in the stream
// from which it continues. It also creates the collection.
func (w *world) prepare(ctx context.Context, p peer) error {
	i, err := w.publisher(p, 0)
	if err != nil {
		return err
	}
	defer i.stop()
	if err := w.publishing(ctx, i); err != nil {
		return err
	}
	return w.settled(ctx)
}

// publishing inserts events until the first of them arrives: a stream that begins now does not see
// those before.
func (w *world) publishing(ctx context.Context, running ...*instance) error {
	events := w.mongo.Database(database).Collection(collection)
	var version int64
	var inserted error
	var at time.Time
	arrived := func() bool {
		if w.distinct() > 0 || inserted != nil {
			return true
		}
		if time.Since(at) < 100*time.Millisecond {
			return false
		}
		version, at = version+1, time.Now()
		_, inserted = events.InsertOne(ctx, document(event{"first", version}))
		return inserted != nil
	}
	return cmp.Or(w.until(ctx, "the first event", arrived, running...), inserted)
}

// settled waits until nothing has been sent for a while, so that a position is saved.
func (w *world) settled(ctx context.Context) error {
	for before := -1; ; {
		w.mu.Lock()
		now := w.sent
		w.mu.Unlock()
		if now == before {
			return nil
		}
		before = now
		if err := retry.Sleep(ctx, 1500*time.Millisecond); err != nil { // longer than the heartbeat that saves a position
			return err
		}
	}
}
