// Package await waits until a read model holds the effect of an event, on a change stream of the
// collection of the guards.
//
// Guaranteed: a process has one stream for each collection, whatever the number of callers; the
// stream is open before a guard is read, so no effect is missed; a guard is read once for a caller
// and then only when it has changed. The stream ends when no caller has waited for a while.
//
// Not guaranteed: that an effect ever comes. An event that the producer leaves out, or that writes
// nothing, may leave the guard where it is.
package await

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"

	"github.com/sluice-cdc/sluice/shared/retry"
)

var (
	// ErrParked is an aggregate that is parked before the effect: it does not come until an
	// operator has ended the parking.
	ErrParked = errors.New("the aggregate is parked")
	// ErrNotYet is a wait that ended before the effect came.
	ErrNotYet = errors.New("the effect has not come")
	// errRetired is a stream that ends because no caller waits.
	errRetired = errors.New("the stream ends")
)

// linger is how long a stream stays open without a caller.
const linger = 30 * time.Second

// Want is the effect that a caller waits for.
type Want struct {
	Aggregate string
	// Version and Position are the least that the guard must have; 0 and empty are always met.
	Version  int64
	Position string
	// Stream is the stream of both, and StreamKey its name as a field of the guard; empty: the
	// stream whose event came first.
	Stream, StreamKey string
}

// Guard is what was last read of an aggregate's guard.
type Guard struct {
	Position string // empty before the first event
	Version  int64
	Parked   *Parked // nil if it is not parked
	// At is the operation time of the read; zero if the server has none.
	At bson.Timestamp
}

// Parked is why an aggregate is parked.
type Parked struct {
	Reason      string `bson:"reason"`
	Description string `bson:"description"`
}

func (w Want) met(g Guard) bool {
	return g.Version >= w.Version && g.Position >= w.Position && g.Position != ""
}

// guards are the guards of a projection. It is safe for concurrent use.
type guards struct {
	collection *mongo.Collection
	prefix     string // leads to the guard in a document

	mu sync.Mutex
	// All below belongs to mu. waiting are the callers, by aggregate; open is set while the stream
	// is, and latest is the time of its last event; stop ends the stream, nil without a stream.
	waiting map[string]map[caller]bool
	open    bool
	latest  bson.Timestamp
	stop    context.CancelFunc
	idle    *time.Timer
	retired bool
	streams sync.WaitGroup
}

// caller is a call of Wait. It receives nil if the guard is to be read, or why there is no stream.
type caller chan error

// wake makes the caller read the guard, unless it is going to anyway.
func (c caller) wake() {
	select {
	case c <- nil:
	default:
	}
}

// fail ends the caller's wait.
func (c caller) fail(err error) {
	select {
	case <-c: //nolint:errcheck // the newer error counts
	default:
	}
	c <- err
}

func newGuards(at place) *guards {
	return &guards{
		collection: at.client.Database(at.database).
			Collection(at.collection, options.Collection().SetReadConcern(readconcern.Majority()).SetReadPreference(readpref.Primary())),
		prefix:  at.prefix,
		waiting: make(map[string]map[caller]bool),
	}
}

// wait returns the guard once it meets what is wanted. Errors, with the guard as it was last read:
// [ErrParked], [ErrNotYet] once ctx has ended; errRetired, before anything is read; and those of
// the database that do not pass, such as of a server without change streams.
func (g *guards) wait(ctx context.Context, want Want) (guard Guard, err error) {
	c, joined := g.join(want.Aggregate) //nolint:contextcheck // the stream is that of all callers
	if !joined {
		return guard, errRetired
	}
	defer g.leave(want.Aggregate, c)
	for {
		select {
		case err := <-c:
			if err != nil {
				return guard, err
			}
		case <-ctx.Done():
			return guard, fmt.Errorf("%w: %w", ErrNotYet, context.Cause(ctx))
		}
		now, err := g.read(ctx, want)
		switch {
		case err != nil && ctx.Err() != nil:
			return guard, fmt.Errorf("%w: %w", ErrNotYet, context.Cause(ctx))
		case err != nil:
			return guard, err
		}
		switch guard = now; {
		case want.met(guard):
			return guard, nil
		case guard.Parked != nil:
			return guard, ErrParked
		}
	}
}

// join adds a caller, which reads the guard once the stream is open. It returns false if the
// stream is about to end.
func (g *guards) join(aggregate string) (c caller, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.retired {
		return nil, false
	}
	c = make(caller, 1)
	if g.waiting[aggregate] == nil {
		g.waiting[aggregate] = make(map[caller]bool)
	}
	g.waiting[aggregate][c] = true
	if g.idle != nil {
		g.idle.Stop()
	}
	if g.open {
		c.wake()
	}
	if g.stop == nil {
		ctx, stop := context.WithCancel(context.Background()) // it outlives the call of the first caller
		g.stop = stop
		g.streams.Go(func() { g.follow(ctx) })
	}
	return c, true
}

// leave removes a caller. After the last one the stream stays open for a while.
func (g *guards) leave(aggregate string, c caller) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.waiting[aggregate], c)
	if len(g.waiting[aggregate]) == 0 {
		delete(g.waiting, aggregate)
	}
	if len(g.waiting) > 0 {
		return
	}
	if g.idle == nil {
		g.idle = time.AfterFunc(linger, func() { retire(g) })
	} else {
		g.idle.Reset(linger)
	}
}

// end ends the stream if no caller waits. It reports whether it did.
func (g *guards) end() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.waiting) > 0 {
		return false
	}
	g.retired = true
	if g.idle != nil {
		g.idle.Stop()
	}
	if g.stop != nil {
		g.stop()
	}
	return true
}

// wakeAll wakes every caller, or ends its wait with an error. mu is held.
func (g *guards) wakeAll(err error) {
	for _, callers := range g.waiting {
		for c := range callers {
			if err != nil {
				c.fail(err)
			} else {
				c.wake()
			}
		}
	}
}

// follow reads the change stream until ctx ends, or until it fails for good.
func (g *guards) follow(ctx context.Context) {
	backoff := retry.Backoff{Max: time.Second}
	for ctx.Err() == nil {
		err := g.stream(ctx, backoff.Reset)
		g.mu.Lock()
		g.open = false
		if err != nil && !passes(err) {
			g.stop() // it has no use any more
			g.stop = nil
			g.wakeAll(fmt.Errorf("watch %s: %w", g.collection.Name(), err))
			g.mu.Unlock()
			return
		}
		g.mu.Unlock()
		_ = backoff.Wait(ctx) // the loop ends with ctx
	}
}

// stream opens the change stream, has every caller read its guard, and then those whose guard
// changes, until the stream ends.
func (g *guards) stream(ctx context.Context, opened func()) error {
	o := options.ChangeStream()
	at, err := g.committed(ctx)
	if err != nil {
		return err
	}
	if at.T > 0 {
		o.SetStartAtOperationTime(&at)
	}
	changes, err := g.collection.Watch(ctx, mongo.Pipeline{{{Key: "$project", Value: bson.D{
		{Key: "documentKey._id", Value: 1}, {Key: "clusterTime", Value: 1}, {Key: "operationType", Value: 1},
	}}}}, o)
	if err != nil {
		return err
	}
	defer func() { _ = changes.Close(context.WithoutCancel(ctx)) }() // nothing depends on it
	opened()
	g.mu.Lock()
	g.latest = at
	g.open = true
	g.wakeAll(nil)
	g.mu.Unlock()
	for changes.Next(ctx) {
		id, _ := changes.Current.Lookup("documentKey", "_id").StringValueOK()
		t, i, _ := changes.Current.Lookup("clusterTime").TimestampOK()
		g.mu.Lock()
		g.latest = bson.Timestamp{T: t, I: i}
		for c := range g.waiting[id] {
			c.wake()
		}
		g.mu.Unlock()
	}
	return changes.Err()
}

// committed returns a time that a majority has committed, from which the stream is to begin.
// Without it, the stream would begin behind the last write that the server has applied. A majority
// need not have committed that write yet, so that a guard could be read without it.
func (g *guards) committed(ctx context.Context) (at bson.Timestamp, err error) {
	session, err := g.collection.Database().Client().StartSession()
	if err != nil {
		return at, fmt.Errorf("start session: %w", err)
	}
	defer session.EndSession(context.WithoutCancel(ctx))
	err = g.collection.FindOne(mongo.NewSessionContext(ctx, session), bson.D{{Key: "_id", Value: bson.MinKey{}}},
		options.FindOne().SetProjection(bson.D{{Key: "_id", Value: 1}})).Err()
	if err != nil && !errors.Is(err, mongo.ErrNoDocuments) {
		return at, err
	}
	if t := session.OperationTime(); t != nil {
		at = *t
	}
	return at, nil
}

// passes reports whether a stream may be opened again after an error.
func passes(err error) bool {
	server, ok := errors.AsType[mongo.ServerError](err)
	return !ok || server.HasErrorLabel("ResumableChangeStreamError") || server.HasErrorLabel("RetryableWriteError") ||
		server.HasErrorLabel("TransientTransactionError") || server.HasErrorCode(286) // ChangeStreamHistoryLost: another one begins now
}

// read reads a guard as of the last event of the stream or later.
func (g *guards) read(ctx context.Context, want Want) (guard Guard, err error) {
	session, err := g.collection.Database().Client().StartSession()
	if err != nil {
		return guard, fmt.Errorf("start session: %w", err)
	}
	defer session.EndSession(context.WithoutCancel(ctx))
	g.mu.Lock()
	latest := g.latest
	g.mu.Unlock()
	if latest.T > 0 {
		if err := session.AdvanceOperationTime(&latest); err != nil {
			return guard, fmt.Errorf("read guard: %w", err)
		}
	}
	fields := bson.D{}
	for _, name := range []string{"position", "version", "stream", "streams", "parked.reason", "parked.description"} {
		fields = append(fields, bson.E{Key: g.prefix + name, Value: 1})
	}
	document, err := g.collection.FindOne(mongo.NewSessionContext(ctx, session), bson.D{{Key: "_id", Value: want.Aggregate}},
		options.FindOne().SetProjection(fields)).Raw()
	if err != nil && !errors.Is(err, mongo.ErrNoDocuments) {
		return guard, fmt.Errorf("read the guard of %q in %s: %w", want.Aggregate, g.collection.Name(), err)
	}
	if guard, err = g.decode(document, want); err != nil {
		return guard, err
	}
	if at := session.OperationTime(); at != nil {
		guard.At = *at
	}
	return guard, nil
}

// decode reads the guard of the wanted stream from a document.
func (g *guards) decode(document bson.Raw, want Want) (guard Guard, err error) {
	whole := document
	if g.prefix != "" {
		whole, _ = document.Lookup(g.prefix[:len(g.prefix)-1]).DocumentOK()
	}
	if parked := whole.Lookup("parked"); parked.Type != 0 {
		guard.Parked = &Parked{}
		if err := parked.Unmarshal(guard.Parked); err != nil {
			return guard, fmt.Errorf("read the guard of %q in %s: %w", want.Aggregate, g.collection.Name(), err)
		}
	}
	own := whole
	if home, _ := whole.Lookup("stream").StringValueOK(); want.Stream != "" && home != "" && home != want.Stream {
		own, _ = whole.Lookup("streams", want.StreamKey).DocumentOK()
	}
	guard.Position, _ = own.Lookup("position").StringValueOK()
	guard.Version, _ = own.Lookup("version").AsInt64OK()
	return guard, nil
}
