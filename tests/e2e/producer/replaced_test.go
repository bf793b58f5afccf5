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

// rename renames a collection of the watched database, over an existing one.
func rename(w *world.World, from, to string) {
	w.Helper()
	require.NoError(w, w.Client.Database("admin").RunCommand(w.Context(), bson.D{
		{Key: "renameCollection", Value: "shop." + from}, {Key: "to", Value: "shop." + to}, {Key: "dropTarget", Value: true},
	}).Err())
}

// replace replaces the watched collection with one that has one document and was created under
// another name.
func replace(w *world.World) {
	w.Helper()
	w.InsertInto(w.Events.Database().Collection("tmp"), bson.D{{Key: "_id", Value: "new"}, {Key: "aggregateId", Value: "Z"}, {Key: "version", Value: 1}})
	rename(w, "tmp", "events")
}

// G6: a collection that is replaced under its name stops the stream, because its documents are not
// in the change stream. The changes before are published, and the checkpoint stays before the
// replacement, so that every start reports it until an operator decides.
func TestG6AReplacedCollectionStopsTheStream(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		a := startLeader(w, "a", nil)
		w.InsertMany(10, 2)
		replace(w)
		require.ErrorContains(w, a.Failed(), "ON_COLLECTION_REPLACED=continue")
		require.Contains(w, a.Log.Text(), "renamed from tmp")
		require.EqualValues(w, 10, w.Checkpoint().Published)

		require.ErrorContains(w, w.StartProducer("a", nil).Failed(), "ON_COLLECTION_REPLACED=continue")
		b := w.StartProducer("b", func(c *producer.Config, _ *producer.Options) { c.OnCollectionReplaced = "continue" })
		w.InsertMany(10, 2)
		w.Published()
		require.Contains(w, b.Log.Text(), "the watched collection was replaced")
		require.Equal(w, 20, w.Bus.Stats(world.Topic).Accepted, "the document that came with it is not published")
		b.End()
	})
}

// A collection that is renamed away is not replaced, nor is one that is dropped and created again:
// its new changes are in the stream.
func TestACollectionThatGoesIsNotReplaced(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		a := startLeader(w, "a", nil)
		w.InsertMany(10, 2)
		rename(w, "events", "archive")
		w.InsertMany(10, 2)
		w.Published()
		require.NoError(w, w.Events.Drop(w.Context()))
		w.InsertMany(10, 2)
		w.Published()
		require.NotContains(w, a.Log.Text(), "was replaced")
		require.Contains(w, a.Log.Text(), "dropped or renamed")
		a.End()
	})
}

// If a deployment refuses the stage that splits large events with an unlisted code, the stream is
// opened without it.
func TestAnyRefusalOfTheSplitStageIsFollowedByAnAttemptWithoutIt(t *testing.T) {
	for _, code := range []int32{0, 115, 303, 304, 168, 4711, 7182800} {
		world.InVirtualTime(t, world.Options{Mongo: mongo.Options{NoSplit: true, NoSplitCode: code}}, ran)
	}
}

// G6: after a transient error while a stream is opened, the producer still knows that the
// deployment splits large events.
func TestG6AnErrorThatPassesLeavesLargeEventsWhole(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		const interrupted = 11601
		w.FailMongo(1, interrupted, "aggregate")
		a := startLeader(w, "a", nil)
		require.NotContains(w, a.Log.Text(), "does not split")
		a.End()
	})
}

// G1: a stream that begins again after its history was lost writes its new beginning at once: if
// the leader died before, the next one would begin later still.
func TestG1TheBeginningAfterLostHistoryIsKeptAtOnce(t *testing.T) {
	world.InVirtualTime(t, world.Options{Mongo: mongo.Options{OplogEntries: 100}}, func(w *world.World) {
		ran(w)
		crowd(w)
		before := w.Checkpoint().Position
		b := w.StartProducer("b", func(c *producer.Config, _ *producer.Options) {
			c.OnHistoryLost, c.HeartbeatInterval, c.FenceAfter, c.TakeoverAfter = "latest", 10*time.Second, 12*time.Second, 14*time.Second
		})
		w.Eventually("b leads", func() bool { return w.Checkpoint().Leader == "b" })
		led := time.Now()
		w.Eventually("the new beginning is kept", func() bool { return w.Checkpoint().Position > before })
		require.Less(w, time.Since(led), 5*time.Second, "well before the next heartbeat")
		b.End()
	})
}
