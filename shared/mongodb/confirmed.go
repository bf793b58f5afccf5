package mongodb

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
)

// ConfirmedTime returns a cluster time after everything that any client has read of the collection
// with majority read concern before this call. It is the time at which the primary confirmed a
// linearizable read: a deposed primary cannot, and the primary writes an entry of its own for it.
func ConfirmedTime(ctx context.Context, c *mongo.Collection) (at bson.Timestamp, err error) {
	session, err := c.Database().Client().StartSession()
	if err != nil {
		return at, fmt.Errorf("start session: %w", err)
	}
	defer session.EndSession(context.WithoutCancel(ctx))
	c = c.Clone(options.Collection().SetReadConcern(readconcern.Linearizable()).SetReadPreference(readpref.Primary()))
	err = c.FindOne(mongo.NewSessionContext(ctx, session), bson.D{{Key: "_id", Value: bson.MinKey{}}},
		options.FindOne().SetProjection(bson.D{{Key: "_id", Value: 1}})).Err()
	if err != nil && !errors.Is(err, mongo.ErrNoDocuments) {
		return at, fmt.Errorf("ask %s.%s for the cluster time: %w", c.Database().Name(), c.Name(), err)
	}
	if now := session.OperationTime(); now != nil {
		return *now, nil
	}
	return at, errors.New("the deployment gives no cluster time: it must be a replica set or a sharded cluster")
}
