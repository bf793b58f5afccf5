package producer_test

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
	"github.com/sluice-cdc/sluice/tests/internal/tree"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// The procedure in the projections' README.
var procedure = []string{
	"1. Give the projection a new name and its collections new names: it then has positions of its own.",
	"2. Stop every producer.",
	"3. Make a subscription for it, with sessions, like the old one's. It must not get a change before the rewind, because positions only go forward: what came later would make everything before it a duplicate.",
	"4. Rewind the stream: `producer token rewind --to TIME`, with a time before the first change that the new read model needs, as far back as the oplog reaches.",
	"5. Start the producers. They publish every change since then again: the old read model recognises them by position.",
	"6. Start a projector with the new projection on the new subscription. It applies them.",
	"7. When it has caught up, point the readers to the new collections, and remove the old projector and its subscription.",
}

// rebuild takes steps 3 to 6 of the procedure, without a producer that runs.
func rebuild(w *world.World, beginning time.Time, change adjustment) (*world.Producer, *world.Projector) {
	w.Helper()
	const rebuilt = "rebuilt"
	require.NoError(w, w.Bus.AddSubscription(world.Topic, servicebus.Subscription{
		Name: rebuilt, Outbound: servicebus.Outbound{RequiresSession: true, LockDuration: world.LockDuration},
	}))
	operate(w, "token", "rewind", "--to", beginning.UTC().Format(time.RFC3339)).succeeds()
	p := w.StartProducer("b", change)
	return p, w.StartProjector(func(c *projector.Config, _ *projector.Options) {
		c.Subscription, c.Projection, c.MirrorCollection = rebuilt, "mirror", "orders-2"
	})
}

// G1 and G3: by the procedure of the README a new read model gets every change, although the broker
// remembers all of them, and the old one applies none a second time.
func TestG1G3ANewReadModelIsBuiltBesideTheOldOne(t *testing.T) {
	tree.Depend()
	guide, err := os.ReadFile("../../../projector/projection/README.md")
	require.NoError(t, err)
	for _, step := range procedure {
		require.Contains(t, string(guide), "\n"+step+"\n")
	}
	world.InVirtualTime(t, world.Options{DuplicateWindow: 7 * 24 * time.Hour}, func(w *world.World) {
		beginning := time.Now()
		w.Pass(2 * time.Second)
		a := startLeader(w, "a", nil)
		old := w.StartProjector(func(c *projector.Config, _ *projector.Options) { c.Projection, c.MirrorCollection = "mirror", "orders" })
		w.InsertMany(50, 5)
		w.Completed(50)
		require.EqualValues(w, 50, documents(w, "orders"))

		a.End()
		b, fresh := rebuild(w, beginning, nil)
		w.InsertMany(10, 5)
		w.Eventually("the new read model has everything", func() bool { return documents(w, "orders-2") == 60 })
		w.Completed(50 + 60)
		b.End()
		ended, err := old.End()
		require.NoError(w, err)
		require.Equal(w, 60, ended.Applied, "nothing twice")
		require.Equal(w, 50, ended.Duplicates)
		require.EqualValues(w, 60, documents(w, "orders"))
		built, err := fresh.End()
		require.NoError(w, err)
		require.Equal(w, 60, built.Applied)
		require.Zero(w, built.DeadLettered)
	})
}

// G6: a parked message without a version does not reach a read model that has moved on, whatever is
// rewound: its position is behind. It reaches a new read model, and the old one if its document is
// written once more.
func TestG6AParkedMessageWithoutVersionsComesToANewReadModel(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		beginning := time.Now()
		w.Pass(2 * time.Second)
		a := startLeader(w, "a", parking)
		old := w.StartProjector(func(c *projector.Config, _ *projector.Options) { c.Projection, c.MirrorCollection = "mirror", "orders" })
		accept := w.Bus.AnswerSendsOf(func(m servicebus.Accepted) bool { return m.Properties["cloudEvents_type"] == "Bad" },
			refusals["for good"])
		for n, eventType := range []string{"Good", "Bad", "Good"} {
			w.InsertDocument(bson.D{{Key: "_id", Value: n}, {Key: "aggregateId", Value: "a0"}, {Key: "type", Value: eventType}})
			w.Pass(2 * time.Second)
		}
		w.Eventually("the others are applied", func() bool { return documents(w, "orders") == 2 })
		a.End()
		accept()

		b, fresh := rebuild(w, beginning, parking)
		w.Eventually("the new read model has everything", func() bool { return documents(w, "orders-2") == 3 })
		w.Pass(time.Minute)
		require.EqualValues(w, 2, documents(w, "orders"), "a rewind does not help, as the guide describes")

		_, err := w.Events.ReplaceOne(w.Context(), bson.D{{Key: "_id", Value: 1}}, bson.D{{Key: "aggregateId", Value: "a0"}, {Key: "type", Value: "Good"}})
		require.NoError(w, err)
		w.Eventually("the old one has it as well", func() bool { return documents(w, "orders") == 3 })
		b.End()
		for _, p := range []*world.Projector{old, fresh} {
			ended, err := p.End()
			require.NoError(w, err)
			require.Zero(w, ended.DeadLettered)
		}
	})
}

// documents counts the documents of a collection of the read model.
func documents(w *world.World, collection string) int64 {
	w.Helper()
	n, err := w.Client.Database(world.ReadModel).Collection(collection).CountDocuments(w.Context(), bson.D{})
	require.NoError(w, err)
	return n
}
