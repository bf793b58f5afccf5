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

// Source is the watched collection, and where in its documents the parts of an event stand: as the producer's settings say.
type Source struct {
	Collection *mongo.Collection
	// AggregatePath, TypePath and VersionPath are dotted; an empty one is not used.
	AggregatePath, TypePath, VersionPath string
}

// String names the collection.
func (s Source) String() string { return s.Collection.Database().Name() + "." + s.Collection.Name() }

// each gives every document as the insert it came in, aggregate by aggregate, each aggregate's by version. The server sorts,
// on its disk where it must.
func (s Source) each(ctx context.Context, fn func(envelope.Change) error) (err error) {
	var order bson.D
	for _, path := range []string{s.AggregatePath, s.VersionPath} {
		if path != "" {
			order = append(order, bson.E{Key: path, Value: 1})
		}
	}
	cursor, err := s.Collection.Find(ctx, bson.D{}, options.Find().SetSort(append(order, bson.E{Key: "_id", Value: 1})).SetAllowDiskUse(true))
	if err != nil {
		return fmt.Errorf("read %s: %w", s, err)
	}
	defer func() { err = errors.Join(err, cursor.Close(context.WithoutCancel(ctx))) }()
	for cursor.Next(ctx) {
		c, err := s.change(cursor.Current)
		if err != nil {
			return err
		}
		if err := fn(c); err != nil {
			return err
		}
	}
	if err := cursor.Err(); err != nil {
		return fmt.Errorf("read %s: %w", s, err)
	}
	return nil
}

// change is the insert of a document, as far as the document tells: not its position, its time and its identity.
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
	c.Version, _ = at(document, s.VersionPath).AsInt64OK()
	var ok bool
	if c.Aggregate, ok = envelope.Text(at(document, s.AggregatePath)); ok {
		return c, nil
	}
	if c.Aggregate, ok = envelope.Text(id); !ok {
		c.Aggregate = id.String()
	}
	return c, nil
}

// guess fills in what the document does not tell, in one of two ways: writes that differ between them depend on it.
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
