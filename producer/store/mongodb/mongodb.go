// Package mongodb is a checkpoint store in MongoDB: one document for each object, in the collection
// [Collection] of a database.
//
// Guaranteed, on a replica set or a sharded cluster: what was written survives the loss of any
// minority of its members, and what is read cannot be rolled back. Reads and writes go to the
// primary with majority concerns, whatever the connection string contains, and the driver repeats
// none of them. An error of the write concern is an unknown outcome.
//
// Not guaranteed: anything on a standalone server, whose writes can be lost when it crashes; and
// leadership during an election of the deployment, which takes longer than a leader's fence. Each
// election ends a term, and nothing is published until the deployment has a primary.
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
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/sluice-cdc/sluice/producer/store"
	"github.com/sluice-cdc/sluice/shared/mongodb"
)

// Collection is the collection that holds the objects.
const Collection = mongodb.Checkpoints

// MaxBytes is the size of the largest object: a document has at most 16 MiB, its name and tag
// included.
const MaxBytes = 16<<20 - 4<<10

// maxConnections bounds the connections of a client: a few requests of each stream are outstanding
// at once.
const maxConnections = 64

// Store holds objects in one collection.
type Store struct {
	objects *mongo.Collection
}

var _ store.Store = (*Store)(nil)

// Open returns the store in a database. It has a client of its own, so that the options of the
// source's connection string do not apply. adjust changes the client's options before those that
// the guarantees need are set; it may be nil. Nothing is sent before the first request.
func Open(uri, database string, adjust func(*options.ClientOptions)) (*Store, error) {
	given := options.Client().ApplyURI(uri).SetAppName("sluice-checkpoint").SetMaxPoolSize(maxConnections)
	if adjust != nil {
		adjust(given)
	}
	majority := *writeconcern.Majority() // without a wtimeout, which would end a write that may still succeed
	given.SetReadPreference(readpref.Primary()).SetReadConcern(readconcern.Majority()).SetWriteConcern(&majority).
		SetRetryReads(false).SetRetryWrites(false)
	client, err := mongo.Connect(given)
	if err != nil {
		return nil, fmt.Errorf("open the client of the checkpoint store: %w", err)
	}
	return &Store{client.Database(database).Collection(Collection)}, nil
}

// Client returns the store's client, whose connections its owner closes.
func (s *Store) Client() *mongo.Client { return s.objects.Database().Client() }

// object is the document that holds an object of the store.
type object struct {
	Name string `bson:"_id"`
	Tag  string `bson:"tag"`
	Data []byte `bson:"data"`
}

func byName(name string) bson.D { return bson.D{{Key: "_id", Value: name}} }

// Get implements [store.Store].
func (s *Store) Get(ctx context.Context, name string) (store.Object, error) {
	var found object
	err := s.objects.FindOne(ctx, byName(name)).Decode(&found)
	switch {
	case errors.Is(err, mongo.ErrNoDocuments):
		return store.Object{}, fmt.Errorf("get %s: %w", name, store.ErrNotFound)
	case err != nil:
		return store.Object{}, fmt.Errorf("get %s: %w", name, err)
	}
	return store.Object{Data: found.Data, Tag: store.Tag(found.Tag)}, nil
}

// Put implements [store.Store].
func (s *Store) Put(ctx context.Context, name string, data []byte, tag store.Tag) (store.Tag, error) {
	if len(data) > MaxBytes {
		return "", fmt.Errorf("put %s: %d bytes: %w", name, len(data), store.ErrTooLarge)
	}
	next := store.NewTag()
	result, err := s.objects.UpdateOne(ctx, append(byName(name), bson.E{Key: "tag", Value: string(tag)}),
		bson.D{{Key: "$set", Value: bson.D{{Key: "tag", Value: string(next)}, {Key: "data", Value: data}}}})
	if err != nil {
		return "", fmt.Errorf("put %s: %w", name, err)
	}
	if result.MatchedCount == 1 {
		return next, nil
	}
	if _, err := s.Get(ctx, name); errors.Is(err, store.ErrNotFound) {
		return "", fmt.Errorf("put %s: %w", name, store.ErrNotFound)
	}
	return "", fmt.Errorf("put %s: %w", name, store.ErrChanged)
}

// Create implements [store.Store].
func (s *Store) Create(ctx context.Context, name string, data []byte) (store.Tag, error) {
	if len(data) > MaxBytes {
		return "", fmt.Errorf("create %s: %d bytes: %w", name, len(data), store.ErrTooLarge)
	}
	tag := store.NewTag()
	_, err := s.objects.InsertOne(ctx, object{Name: name, Tag: string(tag), Data: data})
	switch {
	case mongo.IsDuplicateKeyError(err):
		return "", fmt.Errorf("create %s: %w", name, store.ErrChanged)
	case err != nil:
		return "", fmt.Errorf("create %s: %w", name, err)
	}
	return tag, nil
}

// List implements [store.Store].
func (s *Store) List(ctx context.Context, prefix string) (names []string, err error) {
	within := bson.D{{Key: "$gte", Value: prefix}, {Key: "$lt", Value: prefix + "\U0010FFFF"}}
	cursor, err := s.objects.Find(ctx, bson.D{{Key: "_id", Value: within}},
		options.Find().SetProjection(bson.D{{Key: "_id", Value: 1}}).SetSort(bson.D{{Key: "_id", Value: 1}}))
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", prefix, err)
	}
	var found []object
	if err := cursor.All(ctx, &found); err != nil {
		return nil, fmt.Errorf("list %s: %w", prefix, err)
	}
	for _, o := range found {
		names = append(names, o.Name)
	}
	return names, nil
}

// Delete implements [store.Store].
func (s *Store) Delete(ctx context.Context, name string) error {
	result, err := s.objects.DeleteOne(ctx, byName(name))
	switch {
	case err != nil:
		return fmt.Errorf("delete %s: %w", name, err)
	case result.DeletedCount == 0:
		return fmt.Errorf("delete %s: %w", name, store.ErrNotFound)
	}
	return nil
}
