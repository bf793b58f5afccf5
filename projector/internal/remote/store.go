package remote

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/sluice-cdc/sluice/projector/projection"
)

// storeCollection holds the declarations of all programs that write to the read-model database.
const storeCollection = "sluice_declarations"

// stored is a declaration in the database. The id is the projection's name, with its version's
// suffix, so that each version has its own.
type stored struct {
	ID          string    `bson:"_id"`
	Declaration string    `bson:"declaration"`
	Collections []string  `bson:"collections"`
	Changed     time.Time `bson:"changed"`
}

func storeOf(database *mongo.Database) *mongo.Collection {
	return database.Collection(storeCollection, options.Collection().
		SetWriteConcern(writeconcern.Majority()).SetReadConcern(readconcern.Majority()).SetReadPreference(readpref.Primary()))
}

// ErrNotStored means that no declaration of the projection is stored.
var ErrNotStored = errors.New("no declaration of the projection is stored in the read-model database: start its program, or a projector with it, once")

// Stored returns the stored declaration of a projection, by its name with the version's suffix.
func Stored(ctx context.Context, database *mongo.Database, name string) (*Declaration, error) {
	var s stored
	err := storeOf(database).FindOne(ctx, bson.D{{Key: "_id", Value: name}}).Decode(&s)
	if errors.Is(err, mongo.ErrNoDocuments) {
		return nil, ErrNotStored
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", storeCollection, err)
	}
	return ReadDeclaration([]byte(s.Declaration))
}

// RefusedError is a declaration with which the projection cannot continue.
type RefusedError struct{ err error }

func (e *RefusedError) Error() string { return e.err.Error() }
func (e *RefusedError) Unwrap() error { return e.err }

// Store stores the declaration of a projection, whose collections p has the names of. Errors: a
// [*RefusedError] if the stored one differs in what cannot change, or if another program writes to
// one of the collections.
func Store(ctx context.Context, database *mongo.Database, p projection.Projection, d *Declaration) error {
	before, err := Stored(ctx, database, p.Name())
	if err == nil && before.Hash == d.Hash {
		return nil
	}
	if err != nil && !errors.Is(err, ErrNotStored) {
		return err
	}
	if before != nil {
		if err := before.Adopts(d); err != nil {
			return &RefusedError{fmt.Errorf("%w. %w", err, errNewVersion)}
		}
	}
	names := namesOf(p)
	var other stored
	err = storeOf(database).FindOne(ctx, bson.D{
		{Key: "_id", Value: bson.D{{Key: "$ne", Value: p.Name()}}}, {Key: "collections", Value: bson.D{{Key: "$in", Value: names}}},
	}).Decode(&other)
	switch {
	case err == nil:
		return &RefusedError{fmt.Errorf("the program declares a collection that the projection %s writes to, which are %v", other.ID, other.Collections)}
	case !errors.Is(err, mongo.ErrNoDocuments):
		return fmt.Errorf("read %s: %w", storeCollection, err)
	}
	for _, builtin := range []projection.Projection{projection.Mirror{}, projection.Timeline{}, projection.Orders{}} {
		if builtin.Name() == d.Name { // it is that projection, in another language
			continue
		}
		for _, name := range namesOf(builtin) {
			if slices.Contains(names, name) {
				return &RefusedError{fmt.Errorf("the program declares the collection %s, which is that of the projection %s", name, builtin.Name())}
			}
		}
	}
	_, err = storeOf(database).ReplaceOne(ctx, bson.D{{Key: "_id", Value: p.Name()}},
		stored{ID: p.Name(), Declaration: string(d.Text), Collections: names, Changed: time.Now().UTC()}, options.Replace().SetUpsert(true))
	if err != nil {
		return fmt.Errorf("write %s: %w", storeCollection, err)
	}
	return nil
}

func namesOf(p projection.Projection) (all []string) {
	collections, _ := projection.Collections(p)
	for _, c := range collections {
		all = append(all, c.Name)
	}
	return all
}
