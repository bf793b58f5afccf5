// Package witness makes the records of package history from the servers' data: the messages that
// the broker accepts, the changes of the read model, and its final content.
//
// Guaranteed: a record contains what that very change contains, in the order of the read model's
// own change stream, and the stream resumes after any failure of the server without a gap.
package witness

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/shared/retry"
	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
	"github.com/sluice-cdc/sluice/tests/internal/history"
	"github.com/sluice-cdc/sluice/tests/internal/workload"
)

// Accepted returns the record of a message that the broker has just accepted.
func Accepted(a servicebus.Accepted) history.Acceptance {
	aggregate, _ := a.Properties[envelope.PropSubject].(string)
	position, _ := a.Properties[envelope.PropPosition].(string)
	source, _ := a.Properties[envelope.PropSource].(string)
	_, row := a.Properties[envelope.PropSnapshot]
	return history.Acceptance{
		MessageID: a.MessageID, Stream: strings.TrimPrefix(source, "sluice:"), Aggregate: aggregate, Session: a.SessionID, Position: position,
		Epoch: integer(a.Properties[envelope.PropEpoch]), Version: integer(a.Properties[envelope.PropVersion]),
		Duplicate: a.Duplicate, Row: row, At: time.Now(), // not EnqueuedAt: one clock for every measurement
	}
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

// Watcher follows the change stream of a read model. The zero value begins now.
type Watcher struct {
	token bson.Raw
	time  bson.Timestamp // of the last change that was passed on
	same  int            // changes of that time that were passed on
}

// olderTokensOnly is the code with which a server refuses a resume token of a newer version.
const olderTokensOnly = 50795

// Follow calls each with every change until ctx ends or the server fails. If it is called again, it
// continues behind the last change that it passed on. opened is called when the stream is open.
func (w *Watcher) Follow(ctx context.Context, c *mongo.Collection, opened func(), each func(change bson.Raw, at time.Time)) (err error) {
	o := options.ChangeStream()
	if w.token != nil {
		o.SetResumeAfter(w.token)
	}
	skip := 0
	stream, err := c.Watch(ctx, mongo.Pipeline{}, o)
	if server, refused := errors.AsType[mongo.ServerError](err); refused && server.HasErrorCode(olderTokensOnly) && !w.time.IsZero() {
		skip = w.same
		stream, err = c.Watch(ctx, mongo.Pipeline{}, options.ChangeStream().SetStartAtOperationTime(&w.time))
	}
	if err != nil {
		return fmt.Errorf("open change stream of %s: %w", c.Name(), err)
	}
	defer func() { err = errors.Join(err, stream.Close(context.WithoutCancel(ctx))) }()
	w.token = stream.ResumeToken()
	opened()
	for stream.Next(ctx) {
		at := time.Now()
		w.token = stream.ResumeToken()
		if skip > 0 {
			skip--
			continue
		}
		if t, i := stream.Current.Lookup("clusterTime").Timestamp(); w.time.Equal(bson.Timestamp{T: t, I: i}) {
			w.same++
		} else {
			w.time, w.same = bson.Timestamp{T: t, I: i}, 1
		}
		each(stream.Current, at)
	}
	return stream.Err()
}

// failures is how often in a row a stream may fail, in a quarter of a minute at least, before Watch
// gives it up.
const failures = 20

// Watch calls each with every change of a collection, through any failure of the server, until ctx
// ends; then it returns nil. opened is called once, when the stream is open for the first time.
func Watch(ctx context.Context, c *mongo.Collection, opened func(), each func(change bson.Raw, at time.Time)) error {
	var w Watcher
	opened = sync.OnceFunc(opened)
	backoff := retry.Backoff{Initial: 20 * time.Millisecond, Max: time.Second}
	for {
		err := w.Follow(ctx, c, opened, func(change bson.Raw, at time.Time) {
			backoff.Reset()
			each(change, at)
		})
		switch {
		case ctx.Err() != nil:
			return nil
		case backoff.Attempts() > failures:
			return fmt.Errorf("watch %s: %w", c.Name(), err)
		}
		_ = backoff.Wait(ctx) // the end of ctx ends Follow, too
	}
}

// Timeline returns the record of a change of a timeline; ok is false if the change is not about a
// timeline.
func Timeline(change bson.Raw, at time.Time) (o history.Observation, ok bool) {
	id, ok := envelope.Text(change.Lookup("documentKey", "_id"))
	if !ok {
		return o, false
	}
	o = history.Observation{Aggregate: id, Events: -1, At: at}
	operation, _ := change.Lookup("operationType").StringValueOK()
	switch envelope.Operation(operation) {
	case envelope.Insert, envelope.Replace:
		document, _ := change.Lookup("fullDocument").DocumentOK() // nil without one: nothing is found in it
		if stub, _ := document.Lookup(projection.GuardField, "empty").BooleanOK(); stub {
			return o, false // it only marks the aggregate as parked
		}
		o.Events, _ = document.Lookup("events").AsInt64OK()
		guard, _ := document.Lookup(projection.GuardField).DocumentOK()
		o.Stream, o.Position = positionIn(guard)
	case envelope.Update:
		// What this very update changed: the document itself may have changed since.
		updated, ok := change.Lookup("updateDescription", "updatedFields").DocumentOK()
		if !ok {
			return o, false
		}
		if n, ok := updated.Lookup("events").AsInt64OK(); ok {
			o.Events = n
		}
		o.Stream, o.Position = moved(updated)
		if o.Events < 0 && o.Position == "" {
			return o, false // another part of the guard
		}
	case envelope.Delete:
		o.Events = 0 // timelines are never deleted: the count went back to zero
	}
	return o, true
}

// moved returns the position in the guard that an update wrote, and its stream, which is empty for
// the first one. The server reports a written value under the path of the outermost field that did
// not exist before.
func moved(updated bson.Raw) (stream, position string) {
	fields, _ := updated.Elements() // of a document that the driver has read
	for _, f := range fields {
		switch path := strings.Split(f.Key(), "."); {
		case path[0] != projection.GuardField:
		case len(path) == 1:
			guard, _ := f.Value().DocumentOK()
			stream, position = positionIn(guard)
		case path[1] == "position":
			position, _ = f.Value().StringValueOK()
		case path[1] != "streams":
		case len(path) == 2:
			guests, _ := f.Value().DocumentOK()
			stream, position = guestIn(guests)
		case len(path) == 3:
			guest, _ := f.Value().DocumentOK()
			stream = projection.UnescapeKey(path[2])
			position, _ = guest.Lookup("position").StringValueOK()
		case path[3] == "position":
			stream = projection.UnescapeKey(path[2])
			position, _ = f.Value().StringValueOK()
		}
	}
	return stream, position
}

// positionIn returns the position in a guard that has one.
func positionIn(guard bson.Raw) (stream, position string) {
	if position, ok := guard.Lookup("position").StringValueOK(); ok {
		return "", position
	}
	guests, _ := guard.Lookup("streams").DocumentOK()
	return guestIn(guests)
}

func guestIn(guests bson.Raw) (stream, position string) {
	all, _ := guests.Elements()
	for _, e := range all {
		guest, _ := e.Value().DocumentOK()
		stream = projection.UnescapeKey(e.Key())
		position, _ = guest.Lookup("position").StringValueOK()
	}
	return stream, position
}

// ReadTimeline reads a timeline read model, without the stubs of parked aggregates.
func ReadTimeline(ctx context.Context, c *mongo.Collection) (*history.Model, error) {
	m := &history.Model{}
	return m, workload.Each(ctx, c, func(document bson.Raw) error {
		if stub, _ := document.Lookup(projection.GuardField, "empty").BooleanOK(); stub {
			return nil // to the projection this document does not exist
		}
		id, ok := envelope.Text(document.Lookup("_id"))
		if !ok {
			return fmt.Errorf("read timeline: one has the _id %s", document.Lookup("_id"))
		}
		m.Put(id, summary(document)) // an _id is unique
		return nil
	})
}

func summary(document bson.Raw) history.Summary {
	s := history.Summary{Types: map[string]int64{}}
	s.Events, _ = document.Lookup("events").AsInt64OK()
	s.FirstOccurredAt, _ = document.Lookup("firstOccurredAt").StringValueOK()
	s.LastOccurredAt, _ = document.Lookup("lastOccurredAt").StringValueOK()
	s.LastType, _ = document.Lookup("lastType").StringValueOK()
	types, _ := document.Lookup("types").DocumentOK()
	fields, _ := types.Elements() // of a document that the driver has read
	for _, field := range fields {
		s.Types[projection.UnescapeKey(field.Key())], _ = field.Value().AsInt64OK()
	}
	return s
}
