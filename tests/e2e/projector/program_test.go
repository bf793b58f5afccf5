package projector_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// G1, G3: a projection behind HTTP makes the same read model as the same one in the projector, byte
// by byte, with one call for the events that a session has.
func TestAProgramMakesTheSameReadModel(t *testing.T) {
	for _, p := range []projection.Projection{projection.Timeline{}, projection.Mirror{}} {
		t.Run(p.Name(), func(t *testing.T) {
			made := make(map[bool]string)
			for _, remote := range []bool{false, true} {
				inVirtualTime(t, func(w *world.World) {
					g := w.StartProgram(p)
					defer g.End()
					settings := g.Runs(p.Name())
					if !remote {
						settings = func(c *projector.Config, _ *projector.Options) { c.Projection = p.Name() }
					}
					publish(w, event("a", 1, "OrderPlaced"), event("a", 2, "U.v1"), event("a", 3, "OrderPaid"), event("b", 1, "OrderPlaced"))
					running := w.StartProjector(settings)
					w.Completed(4)
					made[remote] = contents(w, p)
					counted := running.MustEnd()
					require.Equal(w, 4, counted.Applied)
					if remote {
						require.Equal(w, 2, g.Posted(), "one call for each session")
					}
				})
			}
			require.NotEmpty(t, made[true])
			require.Equal(t, made[false], made[true])
		})
	}
}

// contents returns the documents of a projection's collections, in the order of their ids.
func contents(w *world.World, p projection.Projection) (all string) {
	w.Helper()
	collections, _ := projection.Collections(p)
	for _, c := range collections {
		cursor, err := w.Client.Database(world.ReadModel).Collection(c.Name).Find(w.Context(), bson.D{}, options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}))
		require.NoError(w, err)
		for cursor.Next(w.Context()) {
			all += c.Name + " " + cursor.Current.String() + "\n"
		}
		require.NoError(w, cursor.Err())
	}
	return all
}
