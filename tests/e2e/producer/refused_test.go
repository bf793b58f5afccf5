package producer_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// A throttled leader keeps its leadership as long as the throttling lasts, and publishes when it
// may.
func TestAThrottledLeaderHoldsOn(t *testing.T) {
	for _, scope := range []string{"session", "mixed"} {
		world.InVirtualTime(t, world.Options{}, func(w *world.World) {
			a := w.StartProducer("a", func(c *producer.Config, _ *producer.Options) { c.BatchScope, c.StallAfter = scope, 30*time.Second })
			w.Leads("a")
			b := w.StartProducer("b", nil)
			end := w.Bus.Inject(servicebus.Faults{Send: servicebus.Fault{Busy: 1}})
			w.InsertMany(200, 50)
			w.Pass(10 * time.Minute)
			require.Zero(t, w.Bus.Stats(world.Topic).Accepted)
			end()
			w.Published()
			require.Equal(t, "a", w.Checkpoint().Leader)
			require.EqualValues(t, 1, w.Checkpoint().Epoch)
			b.End()
			a.End()
		})
	}
}

// G6: batches that Service Bus always refuses stop the stream, with its reason: here several
// sessions in a batch for a partitioned entity.
func TestG6ABatchThatIsRefusedForGoodStopsTheStream(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		a := w.StartProducer("a", func(c *producer.Config, _ *producer.Options) {
			c.Topic, c.Queue, c.BatchScope = "", world.PartitionedQueue, "mixed"
		})
		w.Leads("a")
		w.InsertMany(100, 50)
		err := <-a.Done
		require.ErrorContains(t, err, "permanently refused by Service Bus")
		require.ErrorContains(t, err, "partitioning")
		require.ErrorContains(t, err, "BATCH_SCOPE=session", "each message alone was accepted")
		require.LessOrEqual(t, w.Checkpoint().Published, int64(w.Bus.Stats(world.PartitionedQueue).Accepted))
	})
}

// The same entity accepts batches of one session each.
func TestAPartitionedEntityTakesBatchesOfOneSession(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		a := w.StartProducer("a", func(c *producer.Config, _ *producer.Options) { c.Topic, c.Queue = "", world.PartitionedQueue })
		w.Leads("a")
		w.InsertMany(100, 10)
		w.Eventually("all are published", func() bool { return w.Bus.Stats(world.PartitionedQueue).Accepted == 100 })
		w.Judge()
		a.End()
	})
}

// If Service Bus takes longer for a send than the fence allows, for a large message or in general,
// the leader waits as long as the heartbeats succeed: no other leader would do better.
func TestASlowServiceBusIsWaitedFor(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		a := w.StartProducer("a", nil)
		w.Leads("a")
		end := w.Bus.Inject(servicebus.Faults{Send: servicebus.Fault{Delay: 10 * time.Second}})
		w.InsertMany(40, 4)
		begun := time.Now()
		w.Published()
		w.Eventually("all is acknowledged", func() bool { return w.Checkpoint().Published == 40 })
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
		a := w.StartProducer("a", nil)
		w.Leads("a")
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
