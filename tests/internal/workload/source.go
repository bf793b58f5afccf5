package workload

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/tests/internal/history"
)

// Stored is an event as it is read from the collection.
type Stored struct {
	AggregateID string `bson:"aggregateId"`
	Version     int64  `bson:"version"`
	Type        string `bson:"type"`
	OccurredAt  string `bson:"occurredAt"`
}

// Scan reads every event of a collection, in no particular order, and passes each to fn.
func Scan(ctx context.Context, collection *mongo.Collection, fn func(Stored)) error {
	fields := bson.D{{Key: "aggregateId", Value: 1}, {Key: "version", Value: 1}, {Key: "type", Value: 1}, {Key: "occurredAt", Value: 1}}
	return Each(ctx, collection, func(document bson.Raw) error {
		var s Stored
		if err := bson.Unmarshal(document, &s); err != nil {
			return fmt.Errorf("decode source event: %w", err)
		}
		fn(s)
		return nil
	}, options.Find().SetProjection(fields))
}

// Timeline returns the timelines of the events of a collection.
func Timeline(ctx context.Context, collection *mongo.Collection) (*history.Model, error) {
	m := &history.Model{}
	return m, Scan(ctx, collection, func(s Stored) { m.Fold(s.AggregateID, s.Version, s.Type, s.OccurredAt) })
}

// Each reads every document of a collection, in no particular order, and passes each to fn, which
// must not keep it.
func Each(ctx context.Context, c *mongo.Collection, fn func(document bson.Raw) error, o ...options.Lister[options.FindOptions]) (err error) {
	cursor, err := c.Find(ctx, bson.D{}, o...)
	if err != nil {
		return fmt.Errorf("read %s: %w", c.Name(), err)
	}
	defer func() { err = errors.Join(err, cursor.Close(context.WithoutCancel(ctx))) }()
	for cursor.Next(ctx) {
		if err := fn(cursor.Current); err != nil {
			return err
		}
	}
	if err := cursor.Err(); err != nil {
		return fmt.Errorf("read %s: %w", c.Name(), err)
	}
	return nil
}
