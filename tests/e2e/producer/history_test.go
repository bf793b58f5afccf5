package producer_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// G6: a deployment that opens the stream behind an invalidate and then says that the history is lost, each time, is believed the
// second time: the first may be the driver's, which resumes there as it must not.
func TestG6HistoryLostBehindAnInvalidateIsTold(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		a := w.StartProducer("a", nil)
		w.Leads("a")
		w.InsertMany(10, 2)
		w.Published()
		const changeStreamHistoryLost = 286
		set := w.Events.Database().Client().Database("admin").RunCommand(w.Context(), bson.D{
			{Key: "configureFailPoint", Value: "failCommand"},
			{Key: "mode", Value: "alwaysOn"},
			{Key: "data", Value: bson.D{
				{Key: "failCommands", Value: bson.A{"getMore"}},
				{Key: "errorCode", Value: changeStreamHistoryLost},
				{Key: "appName", Value: "sluice-producer"},
			}},
		})
		require.NoError(t, w.Events.Drop(w.Context()))
		require.NoError(t, set.Err())
		require.ErrorContains(t, a.Failed(), "changes in between may be lost (ON_HISTORY_LOST=fail)")
	})
}

// A beginning in the past is certain from the moment when the stream is open, like any other: the checkpoint gets its token before
// anything is published.
func TestG1ABeginningInThePastIsKeptAtOnce(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		begin := time.Now()
		w.InsertMany(30, 3)
		a := w.StartProducer("a", func(c *producer.Config, o *producer.Options) {
			c.StartFrom, c.StartAt = "timestamp", begin
		})
		a.BusPlug.Pull()
		w.Leads("a")
		require.NotContains(t, a.Log.Text(), "gives no resume token")
		a.BusPlug.PlugIn()
		w.Published()
		a.End()
	})
}

// G6: a beginning that the oplog does not reach back to is told by the name of its setting; there is no checkpoint to blame.
func TestG6ABeginningBeforeTheOplogIsTold(t *testing.T) {
	world.InVirtualTime(t, world.Options{Mongo: mongo.Options{OplogEntries: 100}}, func(w *world.World) {
		begin := time.Now()
		w.Pass(2 * time.Second)
		w.InsertMany(500, 2)
		a := w.StartProducer("a", func(c *producer.Config, _ *producer.Options) { c.StartFrom, c.StartAt = "timestamp", begin })
		err := a.Failed()
		require.ErrorContains(t, err, "START_AT")
		require.NotContains(t, err.Error(), "checkpoint")
		require.Empty(t, w.Took())
	})
}
