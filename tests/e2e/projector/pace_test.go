package projector_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// G1, G2: locks that are lost with every settlement, for longer than ten consecutive deliveries
// take, do not exhaust a message's deliveries: otherwise the broker would dead-letter it out of
// order.
func TestG1G2MessagesOutlastLocksThatAreLost(t *testing.T) {
	inVirtualTime(t, func(w *world.World) {
		const events = 30
		sender, err := w.BusClient.NewSender(world.QueueOfTenTries, nil)
		require.NoError(w, err)
		batch, err := sender.NewMessageBatch(w.Context(), nil)
		require.NoError(w, err)
		for n := 1; n <= events; n++ {
			require.NoError(w, batch.AddMessage(encode(w, event("a", n, "T")), nil))
		}
		heal := w.Bus.Inject(servicebus.Faults{LoseLock: 1})
		positions := watch(w, "timeline")
		require.NoError(w, sender.SendMessageBatch(w.Context(), batch, nil))
		first, second := w.StartProjector(from(world.QueueOfTenTries)), w.StartProjector(from(world.QueueOfTenTries))
		w.Pass(20 * time.Second)
		require.Zero(w, w.Bus.Stats(world.QueueOfTenTries).Completed, "the locks are lost")
		heal()
		w.Eventually("everything is completed", func() bool { return w.Bus.Stats(world.QueueOfTenTries).Completed == events })
		first.MustEnd()
		second.MustEnd()
		require.Zero(w, w.Bus.Stats(world.QueueOfTenTries).DeadLettered)
		require.Equal(w, int64(events), w.TimelineOf("a").Events)
		require.Len(w, positions()["a"], 1, "applied at once, and recognised ever after")
	})
}

// G2, G5: an event that is delivered for the last time is parked before its projector waits. The
// broker takes it out of its order if the lock is lost meanwhile.
func TestG2G5AnEventIsParkedBeforeItsLastDeliveryWaits(t *testing.T) {
	inVirtualTime(t, func(w *world.World) {
		sender, err := w.BusClient.NewSender(world.QueueOfTenTries, nil)
		require.NoError(w, err)
		require.NoError(w, sender.SendMessage(w.Context(), encode(w, event("a", 1, "T")), nil))
		for range 8 {
			receiver, err := w.BusClient.AcceptSessionForQueue(w.Context(), world.QueueOfTenTries, "a", nil)
			require.NoError(w, err)
			_, err = receiver.ReceiveMessages(w.Context(), 1, nil)
			require.NoError(w, err)
			w.Pass(world.LockDuration + time.Second)
			_ = receiver.Close(w.Context()) // its lock is lost
		}
		w.StartProjector(from(world.QueueOfTenTries))
		w.Pass(5 * time.Second)
		require.Equal(w, "DeliveriesUsedUp", parked(w, "timeline", "a").Reason)
		require.Zero(w, w.Bus.Stats(world.QueueOfTenTries).DeadLettered, "it waits")
		w.Eventually("it is dead-lettered", func() bool { return w.Bus.Stats(world.QueueOfTenTries).DeadLettered == 1 })
	})
}
