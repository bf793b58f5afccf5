package apply

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

	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/envelope"
)

var (
	// errGuard is the guard of a transaction that did not match.
	errGuard = errors.New("guard does not match")
	// errRaced is a document that two transactions made at once.
	errRaced = errors.New("the document was made by somebody else meanwhile")
	// errContended is an aggregate that somebody else keeps writing to. Somebody makes progress, so it heals.
	errContended = errors.New("the guard keeps changing: another projector applies the same aggregate")
)

// maxConflicts is how often one aggregate's guard may change under us before we back off.
const maxConflicts = 5

// Applier writes the effects of one projection. It is safe for concurrent use.
type Applier struct {
	projection projection.Projection
	client     *mongo.Client
	database   *mongo.Database
}

// New makes an applier of a projection for a read-model database. Effects are committed with write concern majority
// whatever the client was configured with, because a message is completed on the strength of them.
func New(p projection.Projection, client *mongo.Client, database string) *Applier {
	return &Applier{
		projection: p,
		client:     client,
		database: client.Database(database, options.Database().
			SetWriteConcern(writeconcern.Majority()).
			// A guard that is read must not be rolled back later: messages are completed because of it.
			SetReadConcern(readconcern.Majority()).
			SetReadPreference(readpref.Primary())),
	}
}

// Apply writes the effects of the pending changes and says in results, which is as long as changes, what became of
// each. On nil every change is decided, or follows a poisoned one of its aggregate and waits for that to be out of the
// way. An error is one that may heal: calling again with the same arguments goes on where it stopped.
func (a *Applier) Apply(ctx context.Context, changes []envelope.Change, results []Result) error {
	groups, failure := plan(a.projection, changes, results)
	var err error
	if one, ok := a.projection.(projection.OneDocument); ok {
		err = a.applyEmbedded(ctx, a.database.Collection(one.Collection()), groups, results)
	} else {
		for _, g := range groups {
			if err = a.applyRecorded(ctx, g, results); err != nil {
				break
			}
		}
	}
	if err != nil {
		return fmt.Errorf("apply projection %s: %w", a.projection.Name(), err)
	}
	return failure
}

// positions reads where the guards stand; an aggregate without a document is missing, one without a position has "".
func positions(ctx context.Context, collection *mongo.Collection, field string, aggregates []string) (map[string]string, error) {
	cursor, err := collection.Find(ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: aggregates}}}},
		options.Find().SetProjection(bson.D{{Key: field, Value: 1}}))
	if err != nil {
		return nil, fmt.Errorf("read guard: %w", err)
	}
	var docs []bson.Raw
	if err := cursor.All(ctx, &docs); err != nil {
		return nil, fmt.Errorf("read guard: %w", err)
	}
	found := make(map[string]string, len(docs))
	for _, doc := range docs {
		id, ok := doc.Lookup("_id").StringValueOK()
		if !ok {
			continue
		}
		guard := doc
		if field == embeddedGuard {
			guard, _ = doc.Lookup(projection.GuardField).DocumentOK()
		}
		position, _ := guard.Lookup("position").StringValueOK()
		found[id] = position
	}
	return found, nil
}

// below is the guard's condition: the position is less than that of the first change to be written. unguarded is for a
// document that was found without one.
func below(aggregate, field string, first *envelope.Change, unguarded bool) bson.D {
	condition := bson.D{{Key: "$lt", Value: first.Position}}
	if unguarded {
		condition = bson.D{{Key: "$exists", Value: false}}
	}
	return bson.D{{Key: "_id", Value: aggregate}, {Key: field, Value: condition}}
}

// guardOf is the guard that stands once c is applied.
func guardOf(c *envelope.Change) bson.D {
	guard := bson.D{{Key: "position", Value: c.Position}, {Key: "epoch", Value: c.Epoch}}
	if c.Version != 0 {
		guard = append(guard, bson.E{Key: "version", Value: c.Version})
	}
	return guard
}
