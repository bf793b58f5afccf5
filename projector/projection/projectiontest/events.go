package projectiontest

import (
	"fmt"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/envelope"
)

// Insert is the event of a document that was inserted: Extended JSON text, or anything that package bson marshals. As
// with the producer's default settings, the event's type is the document's field type, else the operation, and its
// version the field version. Without an _id the document gets the aggregate's.
//
// Every field of an event may be changed before it is used. A malformed document panics: it is the test's own mistake.
func Insert(aggregate string, document any) projection.Event {
	return event(aggregate, envelope.Insert, nil, document)
}

// Update is the event of a document that was updated, with the document after it and, unless nil, before it.
func Update(aggregate string, before, after any) projection.Event {
	return event(aggregate, envelope.Update, before, after)
}

// Replace is the event of a document that was replaced, with the document after it and, unless nil, before it.
func Replace(aggregate string, before, after any) projection.Event {
	return event(aggregate, envelope.Replace, before, after)
}

// Delete is the event of a document that was deleted. key is the documentKey; before is the document, unless nil: the
// source keeps no pre-images then.
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

// stampFrom gives the events what the stream gives them, where the test has not: positions, identities and times. before is how
// many come before them.
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
			panic(fmt.Sprintf("projectiontest: a document of the test is no Extended JSON: %v\n%s", err, d))
		}
		return out
	}
	out, err := bson.Marshal(document)
	if err != nil {
		panic(fmt.Sprintf("projectiontest: a document of the test is no BSON: %v", err))
	}
	return out
}

func value(v any) bson.RawValue { return raw(bson.D{{Key: "v", Value: v}}).Lookup("v") }

func fields(document bson.Raw) bson.D {
	var d bson.D
	if err := bson.Unmarshal(document, &d); err != nil {
		panic(fmt.Sprintf("projectiontest: a document of the test is no BSON: %v", err))
	}
	return d
}
