package world

import (
	"context"
	"errors"

	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/sluice-cdc/sluice/projector/projection"
)

// Counting are projections that count the events of each aggregate, and their collections.
var Counting = map[string]string{"timeline": "timeline", Ledger{}.Name(): "accounts"}

// Ledger writes two documents for each event: one of its aggregate, and one that all aggregates
// share.
type Ledger struct{}

// Name implements [projection.Projection].
func (Ledger) Name() string { return "ledger" }

// Collections implements [projection.Stored].
func (Ledger) Collections() []projection.Collection {
	return []projection.Collection{{Name: "accounts", KeyedBy: projection.ByAggregate}, {Name: "totals"}}
}

// Project implements [projection.Projection].
func (Ledger) Project(e projection.Event) ([]projection.Write, error) {
	if _, poison := e.Document().Lookup("poison").BooleanOK(); poison {
		return nil, projection.Permanent(errors.New("poison"))
	}
	return []projection.Write{
		projection.Update("accounts", e.Aggregate, projection.Inc("events", 1), projection.Set("last", e.Version)),
		projection.Update("totals", "all", projection.Inc("events", 1)),
	}, nil
}

// CountedIn returns the field events of each document of a collection of the read model.
func CountedIn(ctx context.Context, collection *driver.Collection) (map[string]int, error) {
	cursor, err := collection.Find(ctx, bson.D{})
	if err != nil {
		return nil, err
	}
	var all []struct {
		ID     string `bson:"_id"`
		Events int    `bson:"events"`
	}
	err = cursor.All(ctx, &all)
	found := map[string]int{}
	for _, one := range all {
		found[one.ID] = one.Events
	}
	return found, err
}
