package verify

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

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

// Of returns a filter for the documents of an aggregate; a few others may meet it, too.
func (s Source) Of(aggregate string) bson.D {
	return bson.D{{Key: "$or", Value: s.of([]string{aggregate})}}
}

// sample calls fn with n random documents, as [Source.each] does.
func (s Source) sample(ctx context.Context, n int64, fn func(envelope.Change) error) error {
	return sample(ctx, s.Collection, n, nil, func(document bson.Raw) error {
		c, err := s.change(document)
		if err != nil {
			return err
		}
		return fn(c)
	})
}

// any is [Source.each] of the documents that meet one of the conditions.
func (s Source) any(ctx context.Context, conditions []bson.D, fn func(envelope.Change) error) error {
	if len(conditions) == 0 {
		return nil
	}
	return s.each(ctx, bson.D{{Key: "$or", Value: conditions}}, fn)
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
		c, err := s.change(document)
		if err != nil {
			return err
		}
		return fn(c)
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
func (s Source) change(document bson.Raw) (envelope.Change, error) {
	id := document.Lookup("_id")
	body, err := bson.Marshal(bson.D{
		{Key: "operationType", Value: string(envelope.Insert)},
		{Key: "ns", Value: bson.D{{Key: "db", Value: s.Collection.Database().Name()}, {Key: "coll", Value: s.Collection.Name()}}},
		{Key: "documentKey", Value: bson.D{{Key: "_id", Value: id}}},
		{Key: "fullDocument", Value: document},
	})
	if err != nil {
		return envelope.Change{}, fmt.Errorf("copy document %s of %s: %w", id, s, err)
	}
	c := envelope.Change{Stream: s.String(), Operation: envelope.Insert, Type: string(envelope.Insert), Epoch: 1, Body: body}
	if text, ok := envelope.Text(at(document, s.TypePath)); ok {
		c.Type = text
	}
	c.Version, _ = envelope.Number(at(document, s.VersionPath))
	var ok bool
	if c.Aggregate, ok = envelope.Text(at(document, s.AggregatePath)); ok {
		return c, nil
	}
	if c.Aggregate, ok = envelope.Text(id); !ok {
		c.Aggregate = id.String()
	}
	return c, nil
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
