package run

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/shared/retry"
	"github.com/sluice-cdc/sluice/tests/cmd/local/internal/flags"
	"github.com/sluice-cdc/sluice/tests/internal/emulator/servicebus"
	"github.com/sluice-cdc/sluice/tests/internal/history"
)

// accepted records what the broker takes from the producers.
func (r *runner) accepted(a servicebus.Accepted) {
	if a.Entity != r.places.route.In() {
		return
	}
	position, _ := a.Properties[envelope.PropPosition].(string)
	r.rec.Accept(history.Acceptance{
		MessageID: a.MessageID,
		Session:   a.SessionID,
		Position:  position,
		Epoch:     integer(a.Properties[envelope.PropEpoch]),
		Version:   integer(a.Properties["version"]),
		Duplicate: a.Duplicate,
		At:        time.Now(), // not EnqueuedAt: one clock for every measurement
	})
}

func integer(v any) int64 {
	switch n := v.(type) {
	case int64:
		return n
	case int32:
		return int64(n)
	}
	return 0
}

// watch follows the read model by a change stream of our own until ctx ends, through any failure of the server.
func (r *runner) watch(data *data) func(context.Context) error {
	collection := data.readModel.Collection(r.options.Projection)
	return func(ctx context.Context) error {
		var token bson.Raw
		backoff := retry.Backoff{Initial: 20 * time.Millisecond, Max: time.Second}
		for ctx.Err() == nil {
			seen, err := r.follow(ctx, collection, &token)
			if ctx.Err() != nil {
				return nil
			}
			if seen {
				backoff.Reset()
			}
			if backoff.Attempts() > 20 {
				return fmt.Errorf("watch the read model: %w", err)
			}
			_ = backoff.Wait(ctx) // the loop's condition sees the end of ctx
		}
		return nil
	}
}

func (r *runner) follow(ctx context.Context, c *mongo.Collection, token *bson.Raw) (seen bool, err error) {
	o := options.ChangeStream()
	if *token != nil {
		o.SetResumeAfter(*token)
	}
	stream, err := c.Watch(ctx, mongo.Pipeline{}, o)
	if err != nil {
		return false, fmt.Errorf("open change stream: %w", err)
	}
	defer func() { err = errors.Join(err, stream.Close(context.WithoutCancel(ctx))) }()
	*token = stream.ResumeToken()
	r.watching.Do(func() { close(r.watched) })
	for stream.Next(ctx) {
		at := time.Now()
		seen = true
		*token = stream.ResumeToken()
		r.observe(stream.Current, at)
	}
	return seen, stream.Err()
}

// observe records one change of a read-model document.
func (r *runner) observe(change bson.Raw, at time.Time) {
	operation, _ := change.Lookup("operationType").StringValueOK()
	document, _ := change.Lookup("fullDocument").DocumentOK() // nil where there is none: nothing is found in it
	if r.options.Projection == flags.Mirror {
		// The mirror keeps no count; the copy of an event that appears is that event to be seen.
		if id, ok := document.Lookup("aggregateId").StringValueOK(); ok && operation == string(envelope.Insert) {
			r.rec.See(id, 1, at)
		}
		return
	}
	id, ok := envelope.Text(change.Lookup("documentKey", "_id"))
	if !ok {
		return
	}
	o := history.Observation{Aggregate: id, Events: -1, At: at}
	switch envelope.Operation(operation) {
	case envelope.Insert, envelope.Replace:
		o.Events, _ = document.Lookup("events").AsInt64OK()
		o.Position, _ = document.Lookup("_sluice", "position").StringValueOK()
	case envelope.Update:
		// What this very update changed: the document itself may have moved on since.
		updated, ok := change.Lookup("updateDescription", "updatedFields").DocumentOK()
		if !ok {
			return
		}
		if n, ok := updated.Lookup("events").AsInt64OK(); ok {
			o.Events = n
		}
		if o.Position, ok = updated.Lookup("_sluice.position").StringValueOK(); !ok {
			o.Position, _ = updated.Lookup("_sluice", "position").StringValueOK()
		}
	case envelope.Delete:
		o.Events = 0 // nothing deletes a timeline: going back to zero is what it is
	}
	r.rec.Observe(o)
}
