package build

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/projector/projection"
)

// ErrDropped is a version that an operator has dropped.
var ErrDropped = errors.New("this version of the projection was dropped, and its number is not used again: build a version of another number, or delete its app")

// CreateCollections creates the missing collections and indexes of a version that was not dropped.
// Errors: [ErrDropped], and those of [createCollections].
func CreateCollections(ctx context.Context, readModel *mongo.Database, p projection.Projection) error {
	switch state, err := Read(ctx, readModel, p); {
	case err != nil:
		return err
	case state != nil && state.State == Dropped:
		return ErrDropped
	}
	collections, _ := projection.Collections(p)
	return createCollections(ctx, readModel, collections)
}

// Drop records that a version is dropped, which ends its projectors, and returns how to take that
// back.
func Drop(ctx context.Context, readModel *mongo.Database, p projection.Projection) (undo func(context.Context) error, err error) {
	state := bson.D{{Key: "_id", Value: stateID}}
	var before State
	err = records(readModel, p).FindOneAndUpdate(ctx, state,
		bson.D{{Key: "$set", Value: bson.D{{Key: "state", Value: Dropped}, {Key: "changed", Value: time.Now().UTC()}}}},
		options.FindOneAndUpdate().SetUpsert(true).SetReturnDocument(options.Before).
			SetProjection(bson.D{{Key: "state", Value: 1}})).Decode(&before)
	switch {
	case errors.Is(err, mongo.ErrNoDocuments):
		return func(ctx context.Context) error {
			if _, err := records(readModel, p).DeleteOne(ctx, state); err != nil {
				return fmt.Errorf("take back the record of the drop: %w", err)
			}
			return nil
		}, nil
	case err != nil:
		return nil, fmt.Errorf("record that %s is dropped: %w", p.Name(), err)
	}
	return func(ctx context.Context) error {
		_, err := records(readModel, p).UpdateOne(ctx, state, bson.D{{Key: "$set", Value: bson.D{{Key: "state", Value: before.State}}}})
		if err != nil {
			return fmt.Errorf("take back the record of the drop: %w", err)
		}
		return nil
	}, nil
}
