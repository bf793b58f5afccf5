package projection

import (
	"errors"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/shared/envelope"
)

const timelineName = "timeline"

// Timeline counts the events of an event store, per aggregate, in one document:
//
//	{_id: <aggregate id>, events: <int64>, types: {<type, by EscapeKey>: <int64>},
//	 firstOccurredAt, lastOccurredAt, lastType,
//	 _sluice: {position, epoch, version, first, stream}}
//
// An event that is lost or applied twice shows in the count. Only inserts count: an event store is
// append-only. First and last refer to the order of events, not to their times. The type and the
// time are copied from the fields type and occurredAt of the inserted document; without these
// fields, they are the event's type and time (RFC 3339).
type Timeline struct{}

var _ OneDocument = Timeline{}

// Name implements [Projection].
func (Timeline) Name() string { return timelineName }

// Collection implements [OneDocument].
func (Timeline) Collection() string { return timelineName }

// Project implements [Projection].
func (Timeline) Project(e Event) ([]Write, error) {
	if e.Operation != envelope.Insert {
		return nil, nil
	}
	document := e.Document()
	if document == nil {
		return nil, Permanent(errors.New("the insert carries no document"))
	}
	eventType, ok := document.Lookup("type").StringValueOK()
	if !ok {
		eventType = e.Type
	}
	ops := []Op{
		Inc("events", 1),
		Inc("types."+EscapeKey(eventType), 1),
		Set("lastType", eventType),
	}
	if at := occurredAt(e, document); at != nil {
		ops = append(ops, SetOnInsert("firstOccurredAt", at), Set("lastOccurredAt", at))
	}
	return []Write{Update(timelineName, e.Aggregate, ops...)}, nil
}

// occurredAt returns nil if neither the document nor the event has a time.
func occurredAt(e Event, document bson.Raw) any {
	if v := document.Lookup("occurredAt"); v.Type != 0 && v.Type != bson.TypeNull {
		return v
	}
	if e.Time.IsZero() {
		return nil
	}
	return e.Time.UTC().Format(time.RFC3339Nano)
}
