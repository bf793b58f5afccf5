package producer_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// requireImages requires images that the collection does not keep, without checking first: its
// first update stops the stream.
func requireImages(c *producer.Config, o *producer.Options) {
	world.AllOperations(c, o)
	c.BeforeChange, c.OnUnknownAggregate = "required", "documentKey"
}

// G1: what was read before a change that stops the stream is published before it stops. An operator
// who moves the checkpoint past that change, as the error may advise, must not skip what was in
// flight.
func TestG1WhatWasReadBeforeTheStreamStopsIsPublished(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		a := startLeader(w, "a", requireImages)
		end := w.Bus.Inject(servicebus.Faults{Send: servicebus.Fault{Delay: 3 * time.Second}})
		w.InsertMany(20, 5)
		w.Pass(time.Second) // they are read, and sending them takes longer
		_, err := w.Events.UpdateOne(w.Context(), bson.D{{Key: "aggregateId", Value: "a0"}}, bson.D{{Key: "$set", Value: bson.D{{Key: "n", Value: 1}}}})
		require.NoError(t, err)
		require.ErrorContains(t, a.Failed(), "FULL_DOCUMENT_BEFORE_CHANGE is required")
		end()
		w.Judge()
		require.EqualValues(t, 20, w.Checkpoint().Published)
	})
}

// G1: a server answers with several changes at once, or with an error instead of all of them if one
// cannot be returned. Those before it are requested one by one, and published.
func TestG1WhatLiesBeforeAnUnreadableChangeIsPublished(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		ran(w)
		w.InsertMany(20, 5)
		_, err := w.Events.UpdateOne(w.Context(), bson.D{{Key: "aggregateId", Value: "a0"}}, bson.D{{Key: "$set", Value: bson.D{{Key: "n", Value: 1}}}})
		require.NoError(t, err)
		require.ErrorContains(t, w.StartProducer("b", requireImages).Failed(), "FULL_DOCUMENT_BEFORE_CHANGE is required")
		w.Judge()
		require.EqualValues(t, 30, w.Checkpoint().Published)
	})
}
