package projector_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	mongoevent "go.mongodb.org/mongo-driver/v2/event"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/projector/projection"
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
	world.InVirtualTime(t, settings(0), ended(f))
}

// ended returns f with, behind it, the clean end of the projectors that still run.
func ended(f func(w *world.World)) func(w *world.World) {
	return func(w *world.World) {
		f(w)
		for _, p := range w.Projectors {
			select {
			case err := <-p.Done:
				require.NoError(w, err, "a projector ended, and its error was not expected")
			default:
				p.MustEnd()
			}
		}
	}
}

// subtest runs f in virtual time, as the subtest of that name.
func subtest(t *testing.T, name string, f func(w *world.World)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { inVirtualTime(t, f) })
}

// eachReceiver runs f for both values of SESSION_RECEIVER that select one way.
func eachReceiver(t *testing.T, f func(w *world.World, receiver string)) {
	t.Helper()
	for _, receiver := range []string{"direct", "sdk"} {
		subtest(t, receiver, func(w *world.World) { f(w, receiver) })
	}
}

// killedAnywhere runs f with ever later moments at which something is to be killed, counted in
// writes to the network, until f reports that it had finished before. The moments are step writes
// apart, or short ones with -short.
func killedAnywhere(t *testing.T, step, short int, f func(w *world.World, n int) (finished bool)) {
	t.Helper()
	if testing.Short() {
		step = short
	}
	for n, finished := 1, false; !finished && !t.Failed(); n += step {
		inVirtualTime(t, func(w *world.World) { finished = f(w, n) })
	}
}

// inRealTime runs f; roundTrip is that of Service Bus.
func inRealTime(t *testing.T, roundTrip time.Duration, f func(w *world.World)) {
	t.Helper()
	world.InRealTime(t, settings(roundTrip), ended(f))
}

// refusal waits until a projector has ended on its own, and returns its error.
func refusal(w *world.World, p *world.Projector) error {
	w.Helper()
	w.Eventually("the projector ends", func() bool { return len(p.Done) > 0 })
	_, err := p.End()
	return err
}

// runs makes a projector run one projection.
func runs(p projection.Projection) func(*projector.Config, *projector.Options) {
	return func(c *projector.Config, o *projector.Options) {
		registry, err := projection.NewRegistry(p)
		if err != nil {
			panic(err)
		}
		c.Projection, o.Projections = p.Name(), registry
	}
}

// monitored adds to a projector's settings, which may be nil, that a monitor gets the commands of
// its MongoDB client.
func monitored(set func(*projector.Config, *projector.Options), monitor *mongoevent.CommandMonitor) func(*projector.Config, *projector.Options) {
	return func(c *projector.Config, o *projector.Options) {
		if set != nil {
			set(c, o)
		}
		given := o.Mongo
		o.Mongo = func(m *options.ClientOptions) { given(m); m.SetMonitor(monitor) }
	}
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

// rounds returns the events from the first to the last of so many aggregates, a0, a1 and so on: the
// first of each, then the next of each.
func rounds(aggregates, first, last int) (all []envelope.Change) {
	for n := first; n <= last; n++ {
		for a := range aggregates {
			all = append(all, event(fmt.Sprint("a", a), n, "T"))
		}
	}
	return all
}

// publish sends changes in order, as one batch if there are no more than 300.
func publish(w *world.World, changes ...envelope.Change) {
	w.Helper()
	for some := range slices.Chunk(changes, 300) {
		var messages []*azservicebus.Message
		for _, c := range some {
			messages = append(messages, encode(w, c))
		}
		send(w, messages...)
	}
}

// publishTogether sends changes in one session, in order, so that they arrive as one batch.
func publishTogether(w *world.World, changes ...envelope.Change) {
	w.Helper()
	publish(w, inSessions(envelope.Buckets(1), changes...)...)
}

// inSessions puts each change into the session that a key has for its aggregate.
func inSessions(key envelope.SessionKey, changes ...envelope.Change) []envelope.Change {
	for i := range changes {
		changes[i].Session = key.Session(changes[i].Aggregate)
	}
	return changes
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
