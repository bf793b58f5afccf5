package pipeline_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// G2: a document that is inserted and deleted does not reappear in its mirror because its session
// is served late: its delete waits in the same session.
func TestG2ADeletedDocumentStaysDeleted(t *testing.T) {
	world.InVirtualTime(t, world.Options{Since: "6.0"}, func(w *world.World) {
		w.KeepImages()
		a := w.StartProducer("a", world.AllOperations)
		w.Leads("a")
		w.InsertDocument(bson.D{{Key: "_id", Value: "D1"}, {Key: "aggregateId", Value: "A"}})
		w.Eventually("the insert is published", func() bool { return w.Bus.Stats(world.Topic).Accepted == 1 })
		busy, err := w.BusClient.AcceptSessionForSubscription(w.Context(), world.Topic, world.Subscription, "A", nil)
		require.NoError(t, err)
		_, err = w.Events.DeleteOne(w.Context(), bson.D{{Key: "_id", Value: "D1"}})
		require.NoError(t, err)
		w.Eventually("the delete is published", func() bool { return w.Bus.Stats(world.Topic).Accepted == 2 })

		p := w.StartProjector(func(c *projector.Config, _ *projector.Options) { c.Projection = "mirror" })
		w.Pass(5 * time.Second)
		require.NoError(t, busy.Close(w.Context()))
		w.Completed(2)
		_, err = p.End()
		require.NoError(t, err)
		a.End()
		there, err := w.Client.Database(world.ReadModel).Collection("mirror").CountDocuments(w.Context(), bson.D{})
		require.NoError(t, err)
		require.Zero(t, there)
	})
}
