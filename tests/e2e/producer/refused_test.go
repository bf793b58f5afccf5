package producer_test

import (
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// A throttled leader keeps its leadership as long as the throttling lasts, and publishes when it
// may.
func TestAThrottledLeaderHoldsOn(t *testing.T) {
	for _, scope := range []string{"session", "mixed", "auto"} {
		subtest(t, scope, world.Options{}, func(w *world.World) {
			a := startLeader(w, "a", func(c *producer.Config, _ *producer.Options) { c.BatchScope, c.StallAfter = scope, 30*time.Second })
			b := w.StartProducer("b", nil)
			end := w.Bus.Inject(servicebus.Faults{Send: servicebus.Fault{Busy: 1}})
			w.InsertMany(5000, 50)
			w.Pass(10 * time.Minute)
			require.Zero(w, w.Bus.Stats(world.Topic).Accepted)
			end()
			w.Published()
			require.Equal(w, "a", w.Checkpoint().Leader)
			require.EqualValues(w, 1, w.Checkpoint().Epoch)
			b.End()
			a.End()
		})
	}
}

// slowSends occupies every lane with the first events, so that later batches hold several sessions.
var slowSends = servicebus.Faults{Send: servicebus.Fault{Delay: time.Second}}

// G6: batches that Service Bus always refuses stop the stream, with its reason: here several
// sessions in a batch for a partitioned entity.
func TestG6ABatchThatIsRefusedForGoodStopsTheStream(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		a := startLeader(w, "a", func(c *producer.Config, _ *producer.Options) {
			c.Topic, c.Queue, c.BatchScope = "", world.PartitionedQueue, "mixed"
		})
		w.Bus.Inject(slowSends)
		w.InsertMany(100, 50)
		err := a.Failed()
		require.ErrorContains(t, err, "permanently refused by Service Bus")
		require.ErrorContains(t, err, "partitioning")
		require.ErrorContains(t, err, "BATCH_SCOPE=session", "each message alone was accepted")
		require.LessOrEqual(t, w.Checkpoint().Published, int64(w.Bus.Stats(world.PartitionedQueue).Accepted))
	})
}

// G1: a producer with the default settings learns that an entity is partitioned.
func TestG1APartitionedEntityGetsOneSessionPerBatch(t *testing.T) {
	for _, refused := range []string{"fail", "park"} {
		world.InVirtualTime(t, world.Options{}, func(w *world.World) {
			a := startLeader(w, "a", func(c *producer.Config, _ *producer.Options) {
				c.Topic, c.Queue, c.OnRefused = "", world.PartitionedQueue, refused
			})
			w.Bus.Inject(slowSends)
			w.InsertMany(100, 50)
			checkpointed(w, 100)
			require.EqualValues(t, 100, w.Bus.Stats(world.PartitionedQueue).Accepted)
			require.Contains(t, a.Log.Text(), "from now on a batch holds one session")
			w.Judge()
			a.End()
		})
	}
}

// G6: a row of a snapshot that Service Bus always refuses stops the stream. The operator takes the
// checkpoint past it, within the chunk or to its end, and everything else is published.
func TestG6ARowThatIsRefusedForGoodCanBeLeftOut(t *testing.T) {
	for _, version := range []int64{4, 5} {
		world.InVirtualTime(t, world.Options{Since: "5.0"}, func(w *world.World) {
			_, err := w.Events.Indexes().CreateOne(w.Context(), driver.IndexModel{Keys: bson.D{
				{Key: "aggregateId", Value: 1}, {Key: "version", Value: 1}, {Key: "_id", Value: 1},
			}})
			require.NoError(w, err)
			w.InsertMany(20, 1)
			settings := func(c *producer.Config, _ *producer.Options) {
				c.Operations = []envelope.Operation{envelope.Insert}
				c.StartFrom, c.SnapshotChunk = "snapshot", 5
			}
			w.Bus.AnswerSendsOf(versionsOf(version), refusals["for good"])
			stopped := w.StartProducer("a", settings).Failed()
			position := regexp.MustCompile(` at (82[0-9A-F]+)`).FindStringSubmatch(stopped.Error())[1]
			operateWith(w, settings, "token", "set", position).fails("would never be published")
			operateWith(w, settings, "token", "set", "--forward", envelope.Boundary(bson.Timestamp{T: 7}, 1)).
				fails("is not the position of a row that the snapshot publishes now")
			require.EqualValues(w, 1, w.Checkpoint().Epoch)
			operateWith(w, settings, "token", "set", "--forward", position).succeeds()
			b := w.StartProducer("b", settings)
			w.Eventually("everything else is published", func() bool { return len(arrived(w)["a0"]) == 19 })
			b.End()
			require.NotContains(w, arrived(w)["a0"], version)
		})
	}
}

// If Service Bus takes longer for a send than the fence allows, for a large message or in general,
// the leader waits as long as the heartbeats succeed: no other leader would do better.
func TestASlowServiceBusIsWaitedFor(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		a := startLeader(w, "a", nil)
		end := w.Bus.Inject(servicebus.Faults{Send: servicebus.Fault{Delay: 10 * time.Second}})
		w.InsertMany(40, 4)
		begun := time.Now()
		w.Published()
		checkpointed(w, 40)
		require.Less(t, time.Since(begun), time.Minute)
		require.EqualValues(t, 1, w.Checkpoint().Epoch)
		end()
		a.End()
	})
}

// A leader that only MongoDB does not answer cannot know what is waiting there. It steps down for a
// replica that may do better.
func TestALeaderWithoutItsSourceMakesRoom(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		a := startLeader(w, "a", nil)
		b := w.StartProducer("b", nil)
		w.InsertMany(10, 2)
		w.Published()
		a.MongoPlug.Pull()
		w.InsertMany(10, 2)
		cut := time.Now()
		w.Published()
		require.Less(t, time.Since(cut), 2*time.Minute)
		require.Greater(t, time.Since(cut), time.Minute, "STALL_AFTER")
		w.Leads("b")
		require.Contains(t, a.Log.Text(), "stepped down for another leader")
		a.MongoPlug.PlugIn()
		b.End()
		w.Leads("a")
		a.End()
	})
}
