package projection

import (
	"context"
	"errors"
	"fmt"
	"maps"
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
	// errNotYet is a wait that ended before the effect came.
	errNotYet = errors.New("the effect has not come")
	// errRetired is a stream that ends because no caller waits.
	errRetired = errors.New("the stream ends")
)

// linger is how long a stream stays open without a caller.
const linger = 30 * time.Second

// guard is what was last read of an aggregate's guard.
type guard struct {
	position string // empty before the first event
	version  int64
	parked   *ParkedError // nil if it is not parked
	// at is the operation time of the read; zero if the server has none.
	at bson.Timestamp
}

func (a Awaited) met(g guard) bool {
	return g.version >= a.Version && g.position >= a.Position && g.position != ""
}

// guardsAt is a collection of guards, as one client of the process reaches it. prefix leads to the
// guard in a document.
type guardsAt struct {
	client                       *mongo.Client
	database, collection, prefix string
}

// followed are the guards on which callers of this process wait, or have waited a moment ago.
var followed = struct {
	sync.Mutex
	all map[guardsAt]*guards
}{all: make(map[guardsAt]*guards)}

// wait waits until the guard of an aggregate has what is awaited, and returns it. Errors, with the
// guard as it was last read: [*ParkedError]; [errNotYet] once ctx has ended; and those of the
// database that do not pass, such as of a server without change streams.
func (at guardsAt) wait(ctx context.Context, a Awaited) (guard, error) {
	for {
		followed.Lock()
		g := followed.all[at]
		if g == nil {
			g = newGuards(at)
			followed.all[at] = g
		}
		followed.Unlock()
		last, err := g.wait(ctx, a)
		if !errors.Is(err, errRetired) {
			return last, err
		}
	}
}

// retire ends the stream of guards and forgets them, if no caller waits.
func retire(g *guards) {
	followed.Lock()
	defer followed.Unlock()
	if g.end() {
		maps.DeleteFunc(followed.all, func(_ guardsAt, known *guards) bool { return known == g })
	}
}

// guards reads the guards of a projection for all callers of the process, by one change stream. The
// stream is open before a guard is read, so no effect is missed; a guard is read once for a caller,
// and then only when it has changed. It is safe for concurrent use.
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

func newGuards(at guardsAt) *guards {
	return &guards{
		collection: at.client.Database(at.database).
			Collection(at.collection, options.Collection().SetReadConcern(readconcern.Majority()).SetReadPreference(readpref.Primary())),
		prefix:  at.prefix,
		waiting: make(map[string]map[caller]bool),
	}
}

// wait is that of [guardsAt]; besides, errRetired before anything is read.
func (g *guards) wait(ctx context.Context, a Awaited) (last guard, err error) {
	c, joined := g.join(a.Aggregate) //nolint:contextcheck // the stream is that of all callers
	if !joined {
		return last, errRetired
	}
	defer g.leave(a.Aggregate, c)
	for {
		select {
		case err := <-c:
			if err != nil {
				return last, err
			}
		case <-ctx.Done():
			return last, errNotYet
		}
		now, err := g.read(ctx, a)
		switch {
		case err != nil && ctx.Err() != nil:
			return last, errNotYet
		case err != nil:
			return last, err
		}
		switch last = now; {
		case a.met(last):
			return last, nil
		case last.parked != nil:
			return last, last.parked
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
		go g.follow(ctx) // until no caller has waited for a while, or the client is disconnected
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
	if errors.Is(err, mongo.ErrClientDisconnected) {
		return false
	}
	server, ok := errors.AsType[mongo.ServerError](err)
	return !ok || server.HasErrorLabel("ResumableChangeStreamError") || server.HasErrorLabel("RetryableWriteError") ||
		server.HasErrorLabel("TransientTransactionError") || server.HasErrorCode(286) // ChangeStreamHistoryLost: another one begins now
}

// read reads a guard as of the last event of the stream or later.
func (g *guards) read(ctx context.Context, a Awaited) (now guard, err error) {
	session, err := g.collection.Database().Client().StartSession()
	if err != nil {
		return now, fmt.Errorf("start session: %w", err)
	}
	defer session.EndSession(context.WithoutCancel(ctx))
	g.mu.Lock()
	latest := g.latest
	g.mu.Unlock()
	if latest.T > 0 {
		if err := session.AdvanceOperationTime(&latest); err != nil {
			return now, fmt.Errorf("read guard: %w", err)
		}
	}
	fields := bson.D{}
	for _, name := range []string{"position", "version", "stream", "streams", "parked.reason", "parked.description"} {
		fields = append(fields, bson.E{Key: g.prefix + name, Value: 1})
	}
	document, err := g.collection.FindOne(mongo.NewSessionContext(ctx, session), bson.D{{Key: "_id", Value: a.Aggregate}},
		options.FindOne().SetProjection(fields)).Raw()
	if err != nil && !errors.Is(err, mongo.ErrNoDocuments) {
		return now, fmt.Errorf("read the guard of %q in %s: %w", a.Aggregate, g.collection.Name(), err)
	}
	now = g.decode(document, a)
	if at := session.OperationTime(); at != nil {
		now.at = *at
	}
	return now, nil
}

// decode reads the guard of the awaited stream from a document.
func (g *guards) decode(document bson.Raw, a Awaited) (now guard) {
	whole := document
	if g.prefix != "" {
		whole, _ = document.Lookup(g.prefix[:len(g.prefix)-1]).DocumentOK()
	}
	if whole.Lookup("parked").Type != 0 {
		reason, _ := whole.Lookup("parked", "reason").StringValueOK()
		description, _ := whole.Lookup("parked", "description").StringValueOK()
		now.parked = &ParkedError{a.Aggregate, reason, description}
	}
	own := whole
	if home, _ := whole.Lookup("stream").StringValueOK(); a.Stream != "" && home != "" && home != a.Stream {
		own, _ = whole.Lookup("streams", EscapeKey(a.Stream)).DocumentOK()
	}
	now.position, _ = own.Lookup("position").StringValueOK()
	now.version, _ = own.Lookup("version").AsInt64OK()
	return now
}
