package e2e

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/projector"
)

func ordersToo(c *projector.Config, _ *projector.Options) { c.Projection = "orders" }

// indexes names the indexes of a read-model collection.
func (w *projectorWorld) indexes(collection string) (names []string) {
	w.Helper()
	specifications, err := w.client.Database(readModel).Collection(collection).Indexes().ListSpecifications(w.Context())
	require.NoError(w, err)
	for _, s := range specifications {
		names = append(names, s.Name)
	}
	return names
}

// fail makes MongoDB answer the next n commands of a name with an error code.
func (w *projectorWorld) fail(command string, code, n int) {
	w.Helper()
	require.NoError(w, w.client.Database("admin").RunCommand(w.Context(), bson.D{
		{Key: "configureFailPoint", Value: "failCommand"},
		{Key: "mode", Value: bson.D{{Key: "times", Value: n}}},
		{Key: "data", Value: bson.D{{Key: "failCommands", Value: bson.A{command}}, {Key: "errorCode", Value: code}}},
	}).Err())
}

// Several replicas that start at once make each collection and index once, and none of them complains.
func TestProjectorsMakeWhatTheirProjectionNeeds(t *testing.T) {
	inBubble(t, func(w *projectorWorld) {
		// Servers before MongoDB 7 say so to those who come second; the embedded one does when it is made to.
		w.fail("create", 48, 2)
		for range 3 {
			w.start(ordersToo)
		}
		w.eventually("all of it is made", func() bool { return len(w.indexes("orders")) == 2 && len(w.indexes("customers")) == 1 })
		require.Equal(w, []string{"_id_", "customerId_1_placedAt_-1"}, w.indexes("orders"))
		require.Equal(w, []string{"_id_"}, w.indexes("customers"))
		again := w.start(ordersToo)
		w.publish(event("o1", 1, "OrderPlaced")) // it has no customer: only its arrival counts
		w.eventually("it is dealt with", func() bool { return w.bus.Stats(subPath).DeadLettered == 1 })
		for _, p := range w.projectors {
			_, err := p.end()
			require.NoError(w, err)
			require.NotContains(w, p.log.text(), "dependency fails")
		}
		require.NotContains(w, again.log.text(), "dependency fails")
	})
}

// A user without the right to make an index is told so, and what to give; when it has it, all goes on by itself.
func TestProjectorTellsOfMissingRights(t *testing.T) {
	inBubble(t, func(w *projectorWorld) {
		require.NoError(w, w.client.Database("admin").RunCommand(w.Context(), bson.D{
			{Key: "configureFailPoint", Value: "failCommand"},
			{Key: "mode", Value: bson.D{{Key: "times", Value: 3}}},
			{Key: "data", Value: bson.D{{Key: "failCommands", Value: bson.A{"createIndexes"}}, {Key: "errorCode", Value: 13}}},
		}).Err())
		p := w.start(ordersToo)
		w.eventually("it complains", func() bool { return strings.Contains(p.log.text(), "give it the role readWrite on the database") })
		w.eventually("it works again", func() bool { return strings.Contains(p.log.text(), "dependency works again") })
		require.Equal(w, []string{"_id_", "customerId_1_placedAt_-1"}, w.indexes("orders"))
	})
}
