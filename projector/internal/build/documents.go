package build

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/sluice-cdc/sluice/shared/envelope"
)

// Source is the watched collection, with the paths to the parts of an event, which are the
// producer's settings.
type Source struct {
	Collection *mongo.Collection
	// AggregatePath, TypePath and VersionPath have dots. An empty path is not used.
	AggregatePath, TypePath, VersionPath string
}

// String names the collection.
func (s Source) String() string { return s.Collection.Database().Name() + "." + s.Collection.Name() }

// of returns conditions for the documents of these aggregates: each of them meets at least one, and
// few other documents do.
func (s Source) of(aggregates []string) []bson.D {
	var atPath, asID bson.A
	for _, a := range aggregates {
		atPath = append(atPath, envelope.Values(a, false)...)
		asID = append(asID, envelope.Values(a, true)...)
	}
	return append(oneOf(s.AggregatePath, atPath), oneOf("_id", asID)...)
}

// filter returns a filter for the documents of an aggregate; a few others may meet it, too.
func (s Source) filter(aggregate string) bson.D {
	return bson.D{{Key: "$or", Value: s.of([]string{aggregate})}}
}

// each calls fn with the documents as inserts, aggregate by aggregate, and those of an aggregate by
// version. The server sorts them, on disk if it must.
func (s Source) each(ctx context.Context, filter bson.D, fn func(envelope.Change) error) error {
	var order bson.D
	for _, path := range []string{s.AggregatePath, s.VersionPath} {
		if path != "" {
			order = append(order, bson.E{Key: path, Value: 1})
		}
	}
	cursor, err := s.Collection.Find(ctx, filter, options.Find().SetSort(append(order, bson.E{Key: "_id", Value: 1})).SetAllowDiskUse(true))
	if err != nil {
		return fmt.Errorf("read %s: %w", s, err)
	}
	return drain(ctx, cursor, "read "+s.String(), func(document bson.Raw) error {
		return fn(s.change(document))
	})
}

// drain calls fn with every document of a cursor. what describes the read, for errors of the
// server.
func drain(ctx context.Context, cursor *mongo.Cursor, what string, fn func(bson.Raw) error) (err error) {
	defer func() { err = errors.Join(err, cursor.Close(context.WithoutCancel(ctx))) }()
	for cursor.Next(ctx) {
		if err := fn(cursor.Current); err != nil {
			return err
		}
	}
	if err := cursor.Err(); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// change returns the insert of a document, except for what the document does not hold: position,
// time and message id.
func (s Source) change(document bson.Raw) envelope.Change {
	id := document.Lookup("_id")
	c := envelope.Change{Stream: s.String(), Operation: envelope.Insert, Type: string(envelope.Insert), Epoch: 1, Body: s.inserted(id, document)}
	if text, ok := envelope.Text(at(document, s.TypePath)); ok {
		c.Type = text
	}
	c.Version, _ = envelope.Number(at(document, s.VersionPath))
	var ok bool
	if c.Aggregate, ok = envelope.Text(at(document, s.AggregatePath)); ok {
		return c
	}
	if c.Aggregate, ok = envelope.Text(id); !ok {
		c.Aggregate = id.String()
	}
	return c
}

// inserted returns the body of the change that inserted a document.
func (s Source) inserted(id bson.RawValue, document bson.Raw) bson.Raw {
	start, body := bsoncore.AppendDocumentStart(make([]byte, 0, len(document)+len(id.Value)+128))
	body = bsoncore.AppendStringElement(body, "operationType", string(envelope.Insert))
	body = bsoncore.AppendDocumentElement(body, "ns", bsoncore.NewDocumentBuilder().
		AppendString("db", s.Collection.Database().Name()).AppendString("coll", s.Collection.Name()).Build())
	key, body := bsoncore.AppendDocumentElementStart(body, "documentKey")
	if id.Type != 0 {
		body = bsoncore.AppendValueElement(body, "_id", bsoncore.Value{Type: bsoncore.Type(id.Type), Data: id.Value})
	}
	body, _ = bsoncore.AppendDocumentEnd(body, key) // it fails for a start of its own alone
	body = bsoncore.AppendDocumentElement(body, "fullDocument", bsoncore.Document(document))
	body, _ = bsoncore.AppendDocumentEnd(body, start)
	return bson.Raw(body)
}

// guess fills in what the document does not hold, in one of two ways. Writes that differ between
// the two depend on it.
func guess(c envelope.Change, other bool) envelope.Change {
	c.Position, c.Time = "8200", time.Unix(0, 0).UTC()
	if other {
		c.Position, c.Time, c.Epoch = "8201", time.Unix(1, 1_000_000).UTC(), 2
	}
	c.Token = c.Position
	c.MessageID = envelope.MessageID(c.Stream, c.Token)
	return c
}

func at(document bson.Raw, path string) bson.RawValue {
	if path == "" {
		return bson.RawValue{}
	}
	return document.Lookup(strings.Split(path, ".")...)
}

// oneOf returns the condition that a path leads to one of the values; nil if there are no values.
func oneOf(path string, values bson.A) []bson.D {
	if path == "" || len(values) == 0 {
		return nil
	}
	return []bson.D{{{Key: path, Value: bson.D{{Key: "$in", Value: values}}}}}
}

// idsOf returns the values of an _id whose text is this aggregate id.
func idsOf(aggregate string) bson.A {
	var all bson.A
	for _, id := range envelope.Values(aggregate, true) {
		if text, ok := textOf(id); ok && text == aggregate {
			all = append(all, id)
		}
	}
	return all
}

// textOf returns the text of an _id, if it has one.
func textOf(id any) (text string, ok bool) {
	kind, data, err := bson.MarshalValue(id)
	if err != nil {
		return "", false
	}
	return envelope.Text(bson.RawValue{Type: kind, Value: data})
}

// Sample calls fn with n random documents of the source, as inserts, or with all if there are
// fewer.
func (s Source) Sample(ctx context.Context, n int64, fn func(envelope.Change) error) error {
	return sample(ctx, s.Collection, n, nil, func(document bson.Raw) error {
		return fn(guess(s.change(document), false))
	})
}

// inserts returns a document of the source as the change that inserted it, twice: what the document
// does not hold (position, time, message id) differs between the two, so that writes which depend
// on it differ, too.
func (s Source) inserts(document bson.Raw) (one, other envelope.Change) {
	c := s.change(document)
	return guess(c, false), guess(c, true)
}
