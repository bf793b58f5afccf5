package workload

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// Stored is an event as it is read from the collection.
type Stored struct {
	AggregateID string `bson:"aggregateId"`
	Version     int64  `bson:"version"`
	Type        string `bson:"type"`
	OccurredAt  string `bson:"occurredAt"`
}

// Scan reads every event of a collection, in no particular order, and passes each to fn.
func Scan(ctx context.Context, collection *mongo.Collection, fn func(Stored)) (err error) {
	fields := bson.D{{Key: "aggregateId", Value: 1}, {Key: "version", Value: 1}, {Key: "type", Value: 1}, {Key: "occurredAt", Value: 1}}
	cursor, err := collection.Find(ctx, bson.D{}, options.Find().SetProjection(fields))
	if err != nil {
		return fmt.Errorf("read source collection: %w", err)
	}
	defer func() { err = errors.Join(err, cursor.Close(context.WithoutCancel(ctx))) }()
	for cursor.Next(ctx) {
		var s Stored
		if err := cursor.Decode(&s); err != nil {
			return fmt.Errorf("decode source event: %w", err)
		}
		fn(s)
	}
	if err := cursor.Err(); err != nil {
		return fmt.Errorf("read source collection: %w", err)
	}
	return nil
}
