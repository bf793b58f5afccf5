package source

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/shared/retry"
)

// silence is how long the server may not answer before it is reported.
const silence = 3 * time.Second

// remembered is how many changed documents are kept to be compared.
const remembered = 100_000

// changes is what the change stream has shown; safe for concurrent use.
type changes struct {
	mu    sync.Mutex // guards everything below
	count int64
	last  map[string]changed // by _id
	order []string           // _ids by their first change
	more  bool               // there were more than are remembered
	// current is when the server was last asked for changes and had none.
	current time.Time
}

type changed struct {
	id   bson.RawValue
	at   time.Time // when the last change of it was seen
	gone bool      // the collection was dropped or replaced since
}

func (c *changes) add(id bson.RawValue) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last == nil {
		c.last = map[string]changed{}
	}
	c.count++
	key := string(id.Type) + string(id.Value)
	if _, known := c.last[key]; !known {
		if len(c.order) == remembered {
			c.more = true
			return
		}
		c.order = append(c.order, key)
	}
	c.last[key] = changed{id: id, at: time.Now()}
}

// removed notes that every document seen so far went with its collection. MongoDB has no change
// for any of them, so the mirror keeps its copies.
func (c *changes) removed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, last := range c.last {
		last.gone = true
		c.last[key] = last
	}
}

// ids returns the documents that changed in the collection as it is now, how many others went
// with a collection before it, and whether these are all.
func (c *changes) ids() (ids []bson.RawValue, gone int, all bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, key := range c.order {
		if c.last[key].gone {
			gone++
			continue
		}
		ids = append(ids, c.last[key].id)
	}
	return ids, gone, !c.more
}

func (c *changes) since(id bson.RawValue, t time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last[string(id.Type)+string(id.Value)].at.After(t)
}

// nothingSince records that the server had no more changes when it was asked.
func (c *changes) nothingSince(asked time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.current = asked
}

// CatchUp waits until every change that was made before it was called has been seen, or ctx ends.
func (s *Source) CatchUp(ctx context.Context) error {
	called := time.Now()
	current := func() bool {
		s.changes.mu.Lock()
		defer s.changes.mu.Unlock()
		return !s.changes.current.Before(called)
	}
	for !current() {
		if err := retry.Sleep(ctx, lookAgain); err != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

// Seen returns how many changes there were since From according to this package's change stream;
// safe for concurrent use.
func (s *Source) Seen() int64 {
	s.changes.mu.Lock()
	defer s.changes.mu.Unlock()
	return s.changes.count
}

// Watch counts the changes until ctx ends, through every failure of the server and every drop of
// the collection. report is called with what people must know of: that the collection was dropped,
// renamed or replaced, that the stream cannot be read, and that it can be read again.
func (s *Source) Watch(ctx context.Context, report func(event string)) error {
	var token bson.Raw
	backoff := retry.Backoff{Initial: 50 * time.Millisecond, Max: 2 * time.Second}
	a := &attention{report: report, name: s.name()}
	a.overdue = time.AfterFunc(silence, a.fail)
	defer a.overdue.Stop()
	progress := func() {
		backoff.Reset()
		a.answered()
	}
	for ctx.Err() == nil {
		err := s.follow(ctx, &token, progress, report)
		if ctx.Err() != nil {
			return nil
		}
		a.note(err)
		_ = backoff.Wait(ctx) // the loop's condition sees the end of ctx
	}
	return nil
}

// attention reports that the server has not answered for a while, even while the driver still waits
// for one that does.
type attention struct {
	report  func(event string)
	name    string
	overdue *time.Timer // calls fail

	mu      sync.Mutex // guards everything below
	last    error      // of the attempts since the last answer
	failing bool       // it was reported
}

func (a *attention) answered() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.overdue.Reset(silence)
	a.last = nil
	if a.failing {
		a.failing = false
		a.report("the change stream of " + a.name + " can be read again")
	}
}

func (a *attention) note(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.last = err
}

func (a *attention) fail() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.failing {
		return
	}
	a.failing = true
	why := "MongoDB has not answered for " + silence.String()
	if a.last != nil {
		why = concise(a.last)
	}
	a.report(fmt.Sprintf("cannot watch %s, trying again: %s", a.name, why))
}

// follow reads the change stream behind token, which it moves, until the stream ends: with nil if
// the server closed it, as it does behind an invalidate event. progress is called with each answer.
func (s *Source) follow(ctx context.Context, token *bson.Raw, progress func(), report func(event string)) (err error) {
	stream, err := s.open(ctx, *token)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stream.Close(context.WithoutCancel(ctx))) }()
	for {
		asked := time.Now()
		if !stream.TryNext(ctx) {
			if stream.Err() != nil || stream.ID() == 0 {
				return stream.Err()
			}
			progress()
			*token = stream.ResumeToken()
			s.changes.nothingSince(asked)
			continue
		}
		progress()
		s.take(stream.Current, report)
		*token = stream.ResumeToken()
	}
}

// take notes one change event.
func (s *Source) take(event bson.Raw, report func(event string)) {
	kind, _ := event.Lookup("operationType").StringValueOK()
	switch kind {
	case "drop", "dropDatabase":
		s.changes.removed()
		report(s.name() + " was dropped: the mirror keeps the copies of its documents; what is written from now on is followed")
	case "rename":
		s.changes.removed()
		if to, _ := event.Lookup("to", "coll").StringValueOK(); to == s.Collection.Name() {
			report(s.name() + " was replaced by another collection, whose documents are in no change stream")
			return
		}
		report(s.name() + " was renamed: the mirror keeps the copies of its documents; what is written under the old name is followed")
	case "invalidate": // the server closes the stream behind it
	default:
		id := event.Lookup("documentKey", "_id")
		id.Value = append([]byte(nil), id.Value...) // the driver uses its memory again
		s.changes.add(id)
	}
}

// ends are the kinds of change that end a collection.
var ends = []string{"drop", "dropDatabase", "rename", "invalidate"}

// open opens a change stream behind the token, which may be an invalidate event's, or else from the
// beginning.
func (s *Source) open(ctx context.Context, after bson.Raw) (*mongo.ChangeStream, error) {
	wanted := mongo.Pipeline{
		{{Key: "$match", Value: bson.D{{Key: "operationType", Value: bson.D{{Key: "$in", Value: slices.Concat(ends, s.operations)}}}}}},
		{{Key: "$project", Value: bson.D{{Key: "operationType", Value: 1}, {Key: "documentKey", Value: 1}, {Key: "to", Value: 1}}}},
	}
	o := options.ChangeStream()
	if after != nil {
		o.SetStartAfter(after)
	} else {
		o.SetStartAtOperationTime(&bson.Timestamp{T: uint32(s.From.Unix())})
	}
	return s.Collection.Watch(ctx, wanted, o)
}
