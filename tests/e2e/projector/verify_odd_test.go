package projector_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// Copies that are equal are verified as such, whatever their names are: one that begins with a
// dollar, has a dot, is empty or comes twice.
func TestVerifyAcceptsEqualCopiesWithUnusualNames(t *testing.T) {
	o := settings(0)
	o.Since = "5.0" // which stores a name that begins with a dollar
	world.InVirtualTime(t, o, func(w *world.World) {
		set := func(c *projector.Config, _ *projector.Options) { c.Projection = "mirror" }
		w.StartProjector(set)
		documents := []bson.D{
			{{Key: "$price", Value: 5}},
			{{Key: "a", Value: 1}, {Key: "a", Value: 2}},
			{{Key: "sub", Value: bson.D{{Key: "b", Value: 1}, {Key: "b", Value: 2}}}},
			{{Key: "x.y", Value: 1}, {Key: "x", Value: bson.D{{Key: "y", Value: 2}}}},
			{{Key: "", Value: 1}, {Key: "sub", Value: bson.D{{Key: "$set", Value: 3}}}},
		}
		for n, fields := range documents {
			id := fmt.Sprint("d", n)
			document := append(bson.D{{Key: "_id", Value: id}, {Key: "aggregateId", Value: id}}, fields...)
			_, err := source(w).InsertOne(w.Context(), document)
			require.NoError(w, err)
			body, err := bson.Marshal(bson.D{
				{Key: "operationType", Value: "insert"},
				{Key: "documentKey", Value: bson.D{{Key: "_id", Value: id}}},
				{Key: "fullDocument", Value: document},
			})
			require.NoError(w, err)
			c := event(id, n+1, "T")
			c.Body, c.Version = body, 0
			message, err := envelope.Encode(c, envelope.BSON)
			require.NoError(w, err)
			send(w, message)
		}
		w.Completed(len(documents))
		got := exits(w, 0, w.OperateProjector(set, "verify"))
		require.Contains(w, got.Out, "5 events, 5 documents: all right")
	})
}
