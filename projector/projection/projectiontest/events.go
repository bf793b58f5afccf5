package projectiontest

import (
	"fmt"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/envelope"
)

// Insert returns the event of an inserted document, which is Extended JSON text or anything that
// package bson marshals. As with the producer's default settings, the event's type is the
// document's field type, or else the operation, and its version is the field version. If your
// fields have other names, set Type and Version of the event. A document without an _id gets the
// aggregate's id as its _id.
//
// The caller may change any field of the event before using it. A malformed document panics: it is
// a mistake in the test.
func Insert(aggregate string, document any) projection.Event {
	return event(aggregate, envelope.Insert, nil, document)
}

// Update returns the event of an updated document: the document before the update, or nil if the
// source keeps no pre-images, and the document after it.
func Update(aggregate string, before, after any) projection.Event {
	return event(aggregate, envelope.Update, before, after)
}

// Replace returns the event of a replaced document: the document before, or nil if the source keeps
// no pre-images, and the new one.
func Replace(aggregate string, before, after any) projection.Event {
	return event(aggregate, envelope.Replace, before, after)
}

// Delete returns the event of a deleted document. key is its documentKey, such as {_id: …};
// before is the document, or nil if the source keeps no pre-images.
func Delete(aggregate string, key, before any) projection.Event {
	e := event(aggregate, envelope.Delete, before, nil)
	e.Body = body(envelope.Delete, raw(key), before, nil)
	return e
}

// start is the time of the first event of a test.
var start = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)

func event(aggregate string, operation envelope.Operation, before, after any) projection.Event {
	document := raw(after)
	if document == nil {
		document = raw(before)
	}
	id := document.Lookup("_id")
	if id.Type == 0 {
		id = value(aggregate)
		if after != nil {
			after = append(bson.D{{Key: "_id", Value: aggregate}}, fields(raw(after))...)
		}
	}
	e := projection.Event{Change: envelope.Change{
		Stream: "test.events", Epoch: 1, Aggregate: aggregate, Operation: operation, Type: string(operation),
		Body: body(operation, raw(bson.D{{Key: "_id", Value: id}}), before, after),
	}}
	if text, ok := envelope.Text(document.Lookup("type")); ok {
		e.Type = text
	}
	e.Version, _ = document.Lookup("version").AsInt64OK()
	return e
}

func body(operation envelope.Operation, key bson.Raw, before, after any) bson.Raw {
	b := bson.D{{Key: "operationType", Value: string(operation)}, {Key: "documentKey", Value: key}}
	if after != nil {
		b = append(b, bson.E{Key: "fullDocument", Value: raw(after)})
	}
	if before != nil {
		b = append(b, bson.E{Key: "fullDocumentBeforeChange", Value: raw(before)})
	}
	return raw(b)
}

// stampFrom sets what the stream sets, unless the test has: positions, message ids and times.
// before is the number of events that come before these.
func stampFrom(events []projection.Event, before int) []projection.Event {
	stamped := make([]projection.Event, len(events))
	for i, e := range events {
		if e.Position == "" {
			e.Position = fmt.Sprintf("82%022X", before+i+1)
		}
		if e.MessageID == "" {
			e.MessageID = envelope.MessageID(e.Stream, e.Position)
		}
		if e.Time.IsZero() {
			e.Time = start.Add(time.Duration(before+i) * time.Second)
		}
		stamped[i] = e
	}
	return stamped
}

// describe names an event in a failure.
func describe(events []projection.Event, i int) string {
	e := events[i]
	what := string(e.Operation)
	if e.Type != what {
		what += " " + e.Type
	}
	return fmt.Sprintf("event %d of %d (%s of aggregate %s)", i+1, len(events), what, e.Aggregate)
}

// raw reads Extended JSON text, or marshals.
func raw(document any) bson.Raw {
	switch d := document.(type) {
	case nil:
		return nil
	case bson.Raw:
		return d
	case string:
		var out bson.Raw
		if err := bson.UnmarshalExtJSON([]byte(strings.TrimSpace(d)), false, &out); err != nil {
			panic(fmt.Sprintf("projectiontest: a document of the test is not Extended JSON: %v\n%s", err, d))
		}
		return out
	}
	out, err := bson.Marshal(document)
	if err != nil {
		panic(fmt.Sprintf("projectiontest: a document of the test is not BSON: %v", err))
	}
	return out
}

func value(v any) bson.RawValue { return raw(bson.D{{Key: "v", Value: v}}).Lookup("v") }

func fields(document bson.Raw) bson.D {
	var d bson.D
	if err := bson.Unmarshal(document, &d); err != nil {
		panic(fmt.Sprintf("projectiontest: a document of the test is not BSON: %v", err))
	}
	return d
}
