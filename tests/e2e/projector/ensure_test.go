package projector_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

func ordersToo(c *projector.Config, _ *projector.Options) { c.Projection = "orders" }

// indexes names the indexes of a read-model collection.
func indexes(w *world.World, collection string) (names []string) {
	w.Helper()
	specifications, err := w.Client.Database(world.ReadModel).Collection(collection).Indexes().ListSpecifications(w.Context())
	require.NoError(w, err)
	for _, s := range specifications {
		names = append(names, s.Name)
	}
	return names
}

// Several replicas that start at once create each collection and index once, and none logs an
// error.
func TestProjectorsCreateWhatTheirProjectionNeeds(t *testing.T) {
	inVirtualTime(t, func(w *world.World) {
		// Servers before MongoDB 7 report this error to the second client; the embedded one does on
		// request.
		w.FailMongo(2, 48, "create")
		for range 3 {
			w.StartProjector(ordersToo)
		}
		w.Eventually("all of it is made", func() bool { return len(indexes(w, "orders")) == 2 && len(indexes(w, "customers")) == 1 })
		require.Equal(w, []string{"_id_", "customerId_1_placedAt_-1"}, indexes(w, "orders"))
		require.Equal(w, []string{"_id_"}, indexes(w, "customers"))
		w.StartProjector(ordersToo)
		publish(w, event("o1", 1, "OrderPlaced")) // it has no customer: only its arrival counts
		w.Eventually("it is dealt with", func() bool { return w.Bus.Stats(world.SubscriptionPath).DeadLettered == 1 })
		for _, p := range w.Projectors {
			p.MustEnd()
			require.NotContains(w, p.Log.Text(), "dependency fails")
		}
	})
}

// For a user without the right to create an index, the error names the right; once it is granted,
// the projector continues.
func TestProjectorReportsMissingRights(t *testing.T) {
	inVirtualTime(t, func(w *world.World) {
		w.FailMongo(3, 13, "createIndexes")
		p := w.StartProjector(ordersToo)
		w.Eventually("it complains", func() bool { return strings.Contains(p.Log.Text(), "give it the role readWrite on the database") })
		w.Eventually("it works again", func() bool { return strings.Contains(p.Log.Text(), "dependency works again") })
		require.Equal(w, []string{"_id_", "customerId_1_placedAt_-1"}, indexes(w, "orders"))
	})
}

// A caller that waits before the first event of a projection sees its effect: once there is any
// collection of the projection, that of the guards is there, too.
func TestAWaitBeforeTheFirstEventSeesItsEffect(t *testing.T) {
	inVirtualTime(t, func(w *world.World) {
		w.FailMongo(1000, 13, "createIndexes") // the index of parked aggregates would create the collection
		w.StartProjector(runs(world.Ledger{}))
		readModel := w.Client.Database(world.ReadModel)
		w.Eventually("a collection is there", func() bool {
			names, err := readModel.ListCollectionNames(w.Context(), bson.D{})
			return err == nil && len(names) > 0
		})
		awaited := make(chan error, 1)
		go func() {
			_, err := projection.Wait(w.Context(), readModel, projection.Awaited{
				Projection: "ledger", Collection: "accounts", Aggregate: "a", Version: 1,
			})
			awaited <- err
		}()
		w.Pass(time.Second)
		publish(w, event("a", 1, "T"))
		w.Eventually("the effect is seen", func() bool { return len(awaited) > 0 })
		require.NoError(w, <-awaited)
	})
}
