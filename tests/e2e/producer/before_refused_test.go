package producer_test

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// G1: the changes before an event that stops the stream, because its message is permanently
// refused, are published before the stream stops. Otherwise an operator who moves the checkpoint
// past that event, as the error advises, would lose them.
func TestG1WhatLiesBeforeARefusedEventIsPublished(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		slowly := func(c *producer.Config, _ *producer.Options) {
			c.PublishLanes, c.PublishLanesMax, c.BatchMessages = 1, 1, 1
		}
		a := startLeader(w, "a", slowly)
		w.Bus.AnswerSendsOf(func(m servicebus.Accepted) bool { return m.Properties[envelope.PropSubject] == "refused" }, refusals["for good"])
		var events []any
		for n := range 30 {
			events = append(events, bson.D{{Key: "aggregateId", Value: "long"}, {Key: "version", Value: n + 1}})
		}
		events = append(events, bson.D{{Key: "aggregateId", Value: "refused"}, {Key: "version", Value: 1}})
		_, err := w.Events.InsertMany(w.Context(), events)
		require.NoError(w, err)

		failed := a.Failed()
		require.ErrorContains(w, failed, "permanently refused by Service Bus")
		position := regexp.MustCompile(`at (82[0-9A-F]+)`).FindStringSubmatch(failed.Error())[1]
		operate(w, "token", "set", "--forward", position).succeeds()
		b := w.StartProducer("b", slowly)
		w.Insert("last")
		w.Eventually("b goes on", func() bool { return w.Took()[len(w.Took())-1].SessionID == "last" })
		b.End()
		require.Len(w, w.Took(), 30+1)
		require.EqualValues(w, 30, w.Took()[29].Properties[envelope.PropVersion])
	})
}
