package source

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/shared/retry"
)

// remembered is how many changed documents are kept to be compared.
const remembered = 100_000

// changes are what the change stream told; safe for concurrent use.
type changes struct {
	mu    sync.Mutex // guards everything below
	count int64
	last  map[string]changed // by _id
	order []string           // _ids by their first change
	more  bool               // there were more than are remembered
	// current is when it was last asked for changes and there were none.
	current time.Time
}

type changed struct {
	id bson.RawValue
	at time.Time // when the last change of it was seen
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

// ids are the documents that changed, and whether those are all.
func (c *changes) ids() (ids []bson.RawValue, all bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, key := range c.order {
		ids = append(ids, c.last[key].id)
	}
	return ids, !c.more
}

func (c *changes) since(id bson.RawValue, t time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last[string(id.Type)+string(id.Value)].at.After(t)
}

// nothingSince says that there was nothing more when it was asked.
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

// Seen is how many changes there were since From, as a change stream of our own tells; safe for concurrent use.
func (s *Source) Seen() int64 {
	s.changes.mu.Lock()
	defer s.changes.mu.Unlock()
	return s.changes.count
}

// Watch counts the changes until ctx ends, through any failure of the server that passes.
func (s *Source) Watch(ctx context.Context) error {
	var token bson.Raw
	backoff := retry.Backoff{Initial: 50 * time.Millisecond, Max: 5 * time.Second}
	for ctx.Err() == nil {
		before := token
		err := s.follow(ctx, &token)
		if ctx.Err() != nil {
			return nil
		}
		if string(before) != string(token) {
			backoff.Reset()
		}
		if backoff.Attempts() > 20 {
			return fmt.Errorf("watch %s: %w", s.name(), err)
		}
		_ = backoff.Wait(ctx) // the loop's condition sees the end of ctx
	}
	return nil
}

func (s *Source) follow(ctx context.Context, token *bson.Raw) (err error) {
	stream, err := s.open(ctx, *token)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stream.Close(context.WithoutCancel(ctx))) }()
	for {
		asked := time.Now()
		if !stream.TryNext(ctx) {
			*token = stream.ResumeToken()
			if stream.Err() != nil || stream.ID() == 0 {
				break
			}
			s.changes.nothingSince(asked)
			continue
		}
		id := stream.Current.Lookup("documentKey", "_id")
		id.Value = append([]byte(nil), id.Value...) // the driver uses its memory again
		s.changes.add(id)
		*token = stream.ResumeToken()
	}
	if err := stream.Err(); err != nil {
		return err
	}
	return errClosed
}

// errClosed is a stream that the server ended without an error.
var errClosed = errors.New("the server closed the change stream, as it does when the collection is dropped or renamed")

// open opens a change stream of what the producer publishes by default, behind the token or else from the beginning.
func (s *Source) open(ctx context.Context, after bson.Raw) (*mongo.ChangeStream, error) {
	wanted := mongo.Pipeline{
		{{Key: "$match", Value: bson.D{{Key: "operationType", Value: bson.D{{Key: "$in", Value: bson.A{"insert", "update", "replace", "delete"}}}}}}},
		{{Key: "$project", Value: bson.D{{Key: "documentKey", Value: 1}}}},
	}
	o := options.ChangeStream()
	if after != nil {
		o.SetResumeAfter(after)
	} else {
		o.SetStartAtOperationTime(&bson.Timestamp{T: uint32(s.From.Unix())})
	}
	return s.Collection.Watch(ctx, wanted, o)
}
