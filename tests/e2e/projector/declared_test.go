package projector_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// totals counts events in the collection writes, and declares the collection totals.
type totals struct{ writes string }

func (totals) Name() string { return "totals" }

func (totals) Collections() []projection.Collection {
	return []projection.Collection{{Name: "totals", KeyedBy: projection.ByAggregate}}
}

func (p totals) Project(e projection.Event) ([]projection.Write, error) {
	return []projection.Write{projection.Update(p.writes, e.Aggregate, projection.Inc("events", 1))}, nil
}

// A write to a collection that the projection does not declare parks its aggregate, before anything
// is written, and takes effect by a replay once the projection is corrected. Until then verify has
// nothing to compare, and reports nothing as right.
func TestG6AnUndeclaredCollectionIsRefusedAndCostsNothing(t *testing.T) {
	inVirtualTime(t, func(w *world.World) {
		wrong, corrected := runs(totals{"other"}), runs(totals{"totals"})
		p := w.StartProjector(wrong)
		for _, e := range []int{1, 2, 3} {
			change := event("a", e, "T")
			_, err := source(w).InsertOne(w.Context(), change.Document())
			require.NoError(w, err)
			publish(w, change)
		}
		deadLettered(w, 3)
		p.MustEnd()
		record := parked(w, "totals_positions", "a")
		require.Equal(w, "ProjectionInvalid", record.Reason)
		require.Contains(w, record.Description, "projection totals writes to collection other, which it does not declare")
		written, err := w.Client.Database(world.ReadModel).Collection("other").CountDocuments(w.Context(), bson.D{})
		require.NoError(w, err)
		require.Zero(w, written)

		nothing := exits(w, 1, w.OperateProjector(wrong, "verify"))
		require.Contains(w, nothing.Out, "1 event can never be applied: projection totals writes to collection other", "what follows it waits")
		require.Contains(w, nothing.Out, "3 events, 0 documents: nothing was compared")
		require.NotContains(w, nothing.Out, "all right")

		require.Equal(w, 0, w.OperateProjector(corrected, "parked", "replay", "a").Code)
		right := exits(w, 0, w.OperateProjector(corrected, "verify"))
		require.Contains(w, right.Out, "3 events, 1 document: all right")
	})
}
