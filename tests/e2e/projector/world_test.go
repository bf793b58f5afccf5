package projector_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// settings returns the options of the worlds of this package: projectors poll often, and the broker
// soon forgets message ids.
func settings(roundTrip time.Duration) world.Options {
	return world.Options{DuplicateWindow: 20 * time.Second, RoundTrip: roundTrip, Patience: time.Minute, Poll: time.Millisecond}
}

func inVirtualTime(t *testing.T, f func(w *world.World)) {
	t.Helper()
	world.InVirtualTime(t, settings(0), f)
}

// inRealTime runs f; roundTrip is that of Service Bus.
func inRealTime(t *testing.T, roundTrip time.Duration, f func(w *world.World)) {
	t.Helper()
	world.InRealTime(t, settings(roundTrip), f)
}

// event returns the change that inserts one event of an event store.
func event(aggregate string, n int, eventType string) envelope.Change {
	body, err := bson.Marshal(bson.D{
		{Key: "operationType", Value: "insert"},
		{Key: "documentKey", Value: bson.D{{Key: "_id", Value: fmt.Sprintf("%s/%d", aggregate, n)}}},
		{Key: "fullDocument", Value: bson.D{
			{Key: "_id", Value: fmt.Sprintf("%s/%d", aggregate, n)},
			{Key: "aggregateId", Value: aggregate},
			{Key: "version", Value: n},
			{Key: "type", Value: eventType},
			{Key: "occurredAt", Value: fmt.Sprintf("2026-01-01T00:00:%02dZ", n%60)},
		}},
	})
	if err != nil {
		panic(err)
	}
	position := fmt.Sprintf("82%022X", n)
	return envelope.Change{
		Stream: "shop.events", Token: position + aggregate, Position: position, Epoch: 1,
		Aggregate: aggregate, Operation: envelope.Insert, Type: eventType, Version: int64(n), Body: body,
	}
}

// publish sends changes in order, as one batch.
func publish(w *world.World, changes ...envelope.Change) {
	w.Helper()
	var messages []*azservicebus.Message
	for _, c := range changes {
		messages = append(messages, encode(w, c))
	}
	send(w, messages...)
}

func encode(w *world.World, c envelope.Change) *azservicebus.Message {
	w.Helper()
	m, err := envelope.Encode(c, envelope.JSON)
	require.NoError(w, err)
	return m
}

func send(w *world.World, messages ...*azservicebus.Message) {
	w.Helper()
	batch, err := w.Sender.NewMessageBatch(w.Context(), nil)
	require.NoError(w, err)
	for _, m := range messages {
		require.NoError(w, batch.AddMessage(m, nil))
	}
	require.NoError(w, w.Sender.SendMessageBatch(w.Context(), batch, nil))
}

// watch follows the guard of every document of a collection: position after position, per
// aggregate, in commit order.
func watch(w *world.World, collection string) (positions func() map[string][]string) {
	w.Helper()
	stream, err := w.Client.Database(world.ReadModel).Collection(collection).Watch(w.Context(), driver.Pipeline{},
		options.ChangeStream().SetFullDocument(options.UpdateLookup))
	require.NoError(w, err)
	return func() map[string][]string {
		seen := make(map[string][]string)
		// What is committed is there at once; after that nothing arrives.
		ctx, cancel := context.WithTimeout(w.Context(), 2*time.Second)
		defer cancel()
		for stream.Next(ctx) {
			id := stream.Current.Lookup("documentKey", "_id").StringValue()
			position := stream.Current.Lookup("updateDescription", "updatedFields", "_sluice.position")
			if position.Type == 0 { // the document was created, or replaced
				position = stream.Current.Lookup("fullDocument", "_sluice", "position")
			}
			seen[id] = append(seen[id], position.StringValue())
		}
		require.ErrorIs(w, stream.Err(), context.DeadlineExceeded)
		require.NoError(w, stream.Close(w.Context()))
		return seen
	}
}
