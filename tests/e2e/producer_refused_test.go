package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
)

// A leader that is throttled keeps its leadership for as long as it takes, and publishes when it may.
func TestAThrottledLeaderHoldsOn(t *testing.T) {
	for _, scope := range []string{"session", "mixed"} {
		inProducerWorld(t, mongo.Options{}, func(w *producerWorld) {
			a := w.start("a", func(c *producer.Config, _ *producer.Options) { c.BatchScope, c.StallAfter = scope, 30*time.Second })
			w.leads("a")
			b := w.start("b", nil)
			end := w.bus.Inject(servicebus.Faults{Send: servicebus.Fault{Busy: 1}})
			w.insertMany(200, 50)
			w.pause(10 * time.Minute)
			require.Zero(t, w.bus.Stats(topic).Accepted)
			end()
			w.published()
			require.Equal(t, "a", w.checkpoint().Leader)
			require.EqualValues(t, 1, w.checkpoint().Epoch)
			b.end()
			a.end()
		})
	}
}

// G6: batches that Service Bus will refuse however often they are sent stop the stream, with the reason it gave: here several
// sessions in a batch for a partitioned entity.
func TestG6ABatchThatIsRefusedForGoodStopsTheStream(t *testing.T) {
	inProducerWorld(t, mongo.Options{}, func(w *producerWorld) {
		a := w.start("a", func(c *producer.Config, _ *producer.Options) {
			c.Topic, c.Queue, c.BatchScope = "", partitioned, "mixed"
		})
		w.leads("a")
		w.insertMany(100, 50)
		err := <-a.done
		require.ErrorContains(t, err, "refused by Service Bus for good")
		require.ErrorContains(t, err, "partitioning")
		// A batch is not waited for to fill up: one that holds one event is of one session, and is taken.
		accepted := w.bus.Stats(partitioned).Accepted
		require.Less(t, accepted, 100)
		require.LessOrEqual(t, w.checkpoint().Published, int64(accepted))
	})
}

// The same entity takes batches of one session each.
func TestAPartitionedEntityTakesBatchesOfOneSession(t *testing.T) {
	inProducerWorld(t, mongo.Options{}, func(w *producerWorld) {
		a := w.start("a", func(c *producer.Config, _ *producer.Options) { c.Topic, c.Queue = "", partitioned })
		w.leads("a")
		w.insertMany(100, 10)
		w.eventually("all are published", func() bool { return w.bus.Stats(partitioned).Accepted == 100 })
		w.judge()
		a.end()
	})
}

// Service Bus that takes longer for a send than the fence is ahead, for a large message or by itself, is waited for as long as the
// heartbeats go on: no leader would fare better.
func TestASlowServiceBusIsWaitedFor(t *testing.T) {
	inProducerWorld(t, mongo.Options{}, func(w *producerWorld) {
		a := w.start("a", nil)
		w.leads("a")
		end := w.bus.Inject(servicebus.Faults{Send: servicebus.Fault{Delay: 10 * time.Second}})
		w.insertMany(40, 4)
		begun := time.Now()
		w.published()
		w.eventually("all is acknowledged", func() bool { return w.checkpoint().Published == 40 })
		require.Less(t, time.Since(begun), time.Minute)
		require.EqualValues(t, 1, w.checkpoint().Epoch)
		end()
		a.end()
	})
}

// A leader to which MongoDB alone does not answer cannot know what waits there. It makes room for a replica that fares better.
func TestALeaderWithoutItsSourceMakesRoom(t *testing.T) {
	inProducerWorld(t, mongo.Options{}, func(w *producerWorld) {
		a := w.start("a", nil)
		w.leads("a")
		b := w.start("b", nil)
		w.insertMany(10, 2)
		w.published()
		a.mongoPlug.pull()
		w.insertMany(10, 2)
		cut := time.Now()
		w.published()
		require.Less(t, time.Since(cut), 2*time.Minute)
		require.Greater(t, time.Since(cut), time.Minute, "STALL_AFTER")
		w.leads("b")
		require.Contains(t, a.log.text(), "stepped down for another leader")
		a.mongoPlug.plugIn()
		b.end()
		w.leads("a")
		a.end()
	})
}
