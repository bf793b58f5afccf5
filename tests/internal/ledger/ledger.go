// Package ledger is a projection with several documents for each event, so that it is applied in
// transactions, with a separate record of positions. It writes the aggregate's timeline, and a
// total for each type of event that all aggregates feed. Its timelines contain their position, as
// those of the projection timeline do, for package witness.
//
// [Projection] is the projection; [ReadTotals] and [witness.ReadTimeline], of the collection
// [Name], read what it has written.
package ledger

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/tests/internal/history"
)

// Name is the name of the projection, and of the collection of its timelines.
const Name = "ledger"

// TotalsName is the name of the collection of its totals.
const TotalsName = "ledger_totals"

// Projection is the ledger.
type Projection struct{}

var _ projection.Projection = Projection{}

// Name implements [projection.Projection].
func (Projection) Name() string { return Name }

// Project implements [projection.Projection].
func (Projection) Project(e projection.Event) ([]projection.Write, error) {
	writes, err := projection.Timeline{}.Project(e)
	for n, w := range writes {
		u := w.(projection.UpdateOne)
		u.Collection = Name
		u.Ops = append(u.Ops, projection.Set(projection.GuardField+".streams."+projection.EscapeKey(e.Stream)+".position", e.Position))
		kind, _ := e.Document().Lookup("type").StringValueOK()
		writes[n] = u
		writes = append(writes, projection.Update(TotalsName, kind, projection.Inc("events", 1)))
	}
	return writes, err
}

// ReadTotals reads the number of events of each type from the ledger in this database, of the
// version whose collections have the suffix.
func ReadTotals(ctx context.Context, readModel *mongo.Database, suffix string) (*history.Model, error) {
	cursor, err := readModel.Collection(TotalsName+suffix).Find(ctx, bson.D{})
	if err != nil {
		return nil, fmt.Errorf("read totals: %w", err)
	}
	var found []struct {
		Type   string `bson:"_id"`
		Events int64  `bson:"events"`
	}
	if err := cursor.All(ctx, &found); err != nil {
		return nil, fmt.Errorf("read totals: %w", err)
	}
	totals := &history.Model{}
	for _, t := range found {
		totals.Put(t.Type, history.Summary{Events: t.Events})
	}
	return totals, nil
}
