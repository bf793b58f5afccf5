package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
)

func withPipeline(text string) func(*producer.Config, *producer.Options) {
	return func(c *producer.Config, _ *producer.Options) { c.Pipeline = text }
}

// noise is a change that the pipelines below do not pass.
func (w *producerWorld) noise() {
	w.Helper()
	w.insertDocument(bson.D{{Key: "aggregateId", Value: "noise"}, {Key: "type", Value: "Noise"}})
}

// The server filters and trims; order, checkpoint and the collection's end are as without a pipeline. This one would keep
// the invalidate event back, too.
func TestG1ProducerReadsThroughAPipeline(t *testing.T) {
	inProducerWorld(t, mongo.Options{}, func(w *producerWorld) {
		pipeline := withPipeline(`[
			{"$match": {"operationType": "insert", "fullDocument.type": {"$ne": "Noise"}}},
			{"$unset": ["fullDocument.secret", "wallTime"]},
			{"$replaceWith": {"$mergeObjects": ["$$ROOT", {"seen": true}]}}
		]`)
		a := w.start("a", pipeline)
		w.leads("a")
		for range 20 {
			w.noise()
			w.insertMany(3, 2)
		}
		w.published()
		require.NoError(t, w.events.Drop(w.Context()))
		w.noise()
		w.insertMany(10, 2)
		w.published()
		require.NotContains(t, a.log.text(), "history")
		a.end()

		b := w.start("b", pipeline)
		w.insertMany(10, 2)
		w.published()
		b.end()
		require.Zero(t, w.bus.Stats(topic).Duplicates)
	})
}

// A checkpoint moves past what the filter keeps back: the oplog cannot outrun a stream whose changes are all filtered.
func TestProducerOfFilteredChangesMovesItsCheckpoint(t *testing.T) {
	inProducerWorld(t, mongo.Options{}, func(w *producerWorld) {
		a := w.start("a", withPipeline(`[{"$match": {"fullDocument.type": {"$ne": "Noise"}}}]`))
		w.leads("a")
		before := w.checkpoint().Position
		w.noise()
		w.eventually("the checkpoint moves", func() bool { return w.checkpoint().Position > before })
		require.Empty(t, w.took())
		a.end()
	})
}

// G6: what the server refuses of a pipeline ends the producer, with the server's word and what to look at.
func TestG6AServersRefusalOfThePipelineIsTold(t *testing.T) {
	inProducerWorld(t, mongo.Options{}, func(w *producerWorld) {
		a := w.start("a", withPipeline(`[{"$match": {"n": {"$nope": 1}}}]`))
		err := a.failed()
		require.ErrorContains(t, err, "$nope")
		require.ErrorContains(t, err, "check PIPELINE")
	})
}
