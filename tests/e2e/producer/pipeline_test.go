package producer_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

func withPipeline(text string) adjustment {
	return func(c *producer.Config, _ *producer.Options) { c.Pipeline = text }
}

// noise commits a change that the pipelines below filter out.
func noise(w *world.World) {
	w.Helper()
	w.InsertDocument(bson.D{{Key: "aggregateId", Value: "noise"}, {Key: "type", Value: "Noise"}})
}

// The server filters and trims; order, checkpoint and the collection's end are the same as without
// a pipeline. This pipeline would also filter out the invalidate event.
func TestG1ProducerReadsThroughAPipeline(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		pipeline := withPipeline(`[
			{"$match": {"operationType": "insert", "fullDocument.type": {"$ne": "Noise"}}},
			{"$unset": ["fullDocument.secret", "wallTime"]},
			{"$replaceWith": {"$mergeObjects": ["$$ROOT", {"seen": true}]}}
		]`)
		a := startLeader(w, "a", pipeline)
		for range 20 {
			noise(w)
			w.InsertMany(3, 2)
		}
		w.Published()
		require.NoError(t, w.Events.Drop(w.Context()))
		noise(w)
		w.InsertMany(10, 2)
		w.Published()
		require.NotContains(t, a.Log.Text(), "history")
		a.End()

		b := w.StartProducer("b", pipeline)
		w.InsertMany(10, 2)
		w.Published()
		b.End()
		require.Zero(t, w.Bus.Stats(world.Topic).Duplicates)
	})
}

// G6: a pipeline that the server refuses ends the producer, with the server's error and what to
// check.
func TestG6AServersRefusalOfThePipelineIsReported(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		err := w.StartProducer("a", withPipeline(`[{"$match": {"n": {"$nope": 1}}}]`)).Failed()
		require.ErrorContains(t, err, "$nope")
		require.ErrorContains(t, err, "check PIPELINE")
	})
}
