package sim

import (
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/tests/internal/history"
	"github.com/sluice-cdc/sluice/tests/sim/internal/plan"
)

const totalsName = "ledger_totals"

// ledger is a projection with several documents for each event, so that it is applied in transactions beside a record of
// positions: the aggregate's timeline, and a total for each type of event that all aggregates feed. Its timelines say their
// position as those of timeline do, for the witness.
type ledger struct{}

// Name implements [projection.Projection].
func (ledger) Name() string { return plan.Ledger }

// Project implements [projection.Projection].
func (ledger) Project(e projection.Event) ([]projection.Write, error) {
	writes, err := projection.Timeline{}.Project(e)
	for n, w := range writes {
		u := w.(projection.UpdateOne)
		u.Collection = plan.Ledger
		u.Ops = append(u.Ops, projection.Set(projection.GuardField+".streams."+projection.EscapeKey(e.Stream)+".position", e.Position))
		kind, _ := e.Document().Lookup("type").StringValueOK()
		writes[n] = u
		writes = append(writes, projection.Update(totalsName, kind, projection.Inc("events", 1)))
	}
	return writes, err
}

// totals are the events by type, as the ledger says them.
func (w *world) totals() (*history.Model, error) {
	cursor, err := w.client.Database(readModel).Collection(totalsName).Find(w.Context(), bson.D{})
	if err != nil {
		return nil, fmt.Errorf("read totals: %w", err)
	}
	var found []struct {
		Type   string `bson:"_id"`
		Events int64  `bson:"events"`
	}
	if err := cursor.All(w.Context(), &found); err != nil {
		return nil, fmt.Errorf("read totals: %w", err)
	}
	totals := &history.Model{}
	for _, t := range found {
		totals.Put(t.Type, history.Summary{Events: t.Events})
	}
	return totals, nil
}
