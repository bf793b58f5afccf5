package build

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/mongodb"
)

// ErrRights is a user who may not make a collection or an index.
var ErrRights = errors.New("the user has too few rights: give it the role readWrite on the database, or have another " +
	"user create the collections and indexes and give it listCollections and listIndexes")

// createCollections creates the missing collections and their indexes. Errors: [ErrRights], and
// those of the driver.
func createCollections(ctx context.Context, database *mongo.Database, collections []projection.Collection) error {
	existing, err := database.ListCollectionNames(ctx, bson.D{})
	if err != nil {
		return explain(fmt.Errorf("list collections of %s: %w", database.Name(), err))
	}
	for _, c := range collections {
		if !slices.Contains(existing, c.Name) {
			if err := database.CreateCollection(ctx, c.Name); err != nil && !mongodb.HasCode(err, mongodb.NamespaceExists) {
				return explain(fmt.Errorf("create collection %s: %w", c.Name, err))
			}
			existing = append(existing, c.Name)
		}
		for _, index := range c.Indexes {
			if err := makeIndex(ctx, database.Collection(c.Name), index); err != nil {
				return err
			}
		}
	}
	return nil
}

// makeIndex creates the index; a server that has it answers at once.
func makeIndex(ctx context.Context, collection *mongo.Collection, index projection.Index) error {
	o := options.Index()
	if index.Unique {
		o.SetUnique(true)
	}
	if index.Partial != nil {
		o.SetPartialFilterExpression(index.Partial)
	}
	_, err := collection.Indexes().CreateOne(ctx, mongo.IndexModel{Keys: index.Keys, Options: o})
	if err == nil {
		return nil
	}
	err = fmt.Errorf("create index %v of %s: %w", index.Keys, collection.Name(), err)
	switch {
	case mongodb.HasCode(err, mongodb.IndexOptionsConflict, mongodb.IndexKeySpecsConflict):
		return fmt.Errorf("%w; one with other options is there: drop that, or make the projection's the same", err)
	case mongodb.HasCode(err, mongodb.DuplicateKey):
		return fmt.Errorf("%w; documents of the read model share these keys: fix them, or make the index not unique", err)
	}
	return explain(err)
}

func explain(err error) error {
	if mongodb.HasCode(err, mongodb.Unauthorized, mongodb.AtlasError) {
		return fmt.Errorf("%w: %w", err, ErrRights)
	}
	return err
}

// CollationError is a collection whose collation is not simple.
type CollationError struct{ Database, Collection string }

func (e *CollationError) Error() string {
	return fmt.Sprintf("%s.%s has a collation of its own: aggregate ids and positions that it takes for equal would be mixed up. "+
		"Recreate the collection without a collation, or set another READ_MODEL_DATABASE; give searches an index or a query with the collation instead",
		e.Database, e.Collection)
}

// CheckCollations checks that none of the collections that exist has a collation other than simple.
// Errors: [*CollationError], [ErrRights], and those of the driver.
func CheckCollations(ctx context.Context, database *mongo.Database, names []string) error {
	existing, err := database.ListCollectionSpecifications(ctx, bson.D{{Key: "name", Value: bson.D{{Key: "$in", Value: names}}}})
	if err != nil {
		return explain(fmt.Errorf("list collections of %s: %w", database.Name(), err))
	}
	for _, c := range existing {
		// A server stores no simple collation.
		if c.Options.Lookup("collation").Type != 0 {
			return &CollationError{Database: database.Name(), Collection: c.Name}
		}
	}
	return nil
}
