package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
)

// G1: what was read before a change that stops the stream is published before it stops: whoever takes the checkpoint past that
// change, as the error may advise, must not pass over what was on its way.
func TestG1WhatWasReadBeforeTheStreamStopsIsPublished(t *testing.T) {
	inProducerWorld(t, mongo.Options{}, func(w *producerWorld) {
		a := w.start("a", func(c *producer.Config, _ *producer.Options) { c.BeforeChange = "required" })
		w.leads("a")
		end := w.bus.Inject(servicebus.Faults{Send: servicebus.Fault{Delay: 3 * time.Second}})
		w.insertMany(20, 5)
		w.pause(time.Second) // they are read, and sending them takes longer
		_, err := w.events.UpdateOne(w.Context(), bson.D{{Key: "aggregateId", Value: "a0"}}, bson.D{{Key: "$set", Value: bson.D{{Key: "n", Value: 1}}}})
		require.NoError(t, err)
		require.ErrorContains(t, a.failed(), "FULL_DOCUMENT_BEFORE_CHANGE is required")
		end()
		w.judge()
		require.EqualValues(t, 20, w.checkpoint().Published)
	})
}

// G1: a server answers with several changes at once, or with an error in place of all of them where it cannot give one. Those before
// it are asked for one by one, and published.
func TestG1WhatLiesBeforeAnUnreadableChangeIsPublished(t *testing.T) {
	inProducerWorld(t, mongo.Options{}, func(w *producerWorld) {
		w.ran()
		required := func(c *producer.Config, _ *producer.Options) { c.BeforeChange = "required" }
		w.insertMany(20, 5)
		_, err := w.events.UpdateOne(w.Context(), bson.D{{Key: "aggregateId", Value: "a0"}}, bson.D{{Key: "$set", Value: bson.D{{Key: "n", Value: 1}}}})
		require.NoError(t, err)
		b := w.start("b", required)
		require.ErrorContains(t, b.failed(), "FULL_DOCUMENT_BEFORE_CHANGE is required")
		w.judge()
		require.EqualValues(t, 30, w.checkpoint().Published)
	})
}
