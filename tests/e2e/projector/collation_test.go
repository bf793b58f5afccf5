package projector_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// A collection with a collation compares ids and positions by it. A projector that uses one ends
// before it accepts a session, and doctor reports it.
func TestG2ACollectionWithACollationIsRefused(t *testing.T) {
	for s, collections := range map[int][]string{0: {"timeline"}, 1: {"ledger_positions"}} {
		for _, collection := range collections {
			subtest(t, collection, func(w *world.World) {
				s := shapes()[s]
				database := w.Client.Database(world.ReadModel)
				require.NoError(w, database.CreateCollection(w.Context(), collection,
					options.CreateCollection().SetCollation(&options.Collation{Locale: "en", Strength: 2})))
				publish(w, event("a", 1, "T"))
				p := w.StartProjector(s.settings)
				err := refusal(w, p)
				require.ErrorContains(w, err, "1 setting must be fixed")
				require.ErrorContains(w, err, "READ_MODEL_DATABASE: "+world.ReadModel+"."+collection+" has a collation of its own")
				require.ErrorContains(w, err, "Recreate the collection without a collation")
				require.Equal(w, 1, w.Bus.Stats(world.SubscriptionPath).Active)

				examined := exits(w, 1, operate(w, s, "doctor"))
				require.Contains(w, examined.Out, collection+" has a collation of its own")
				require.Contains(w, examined.Out, "recreate it without a collation")
			})
		}
	}
}
