package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
)

// G1, G2: locks that are lost with every settlement, for longer than ten deliveries take one after the other, do not use up a
// message's deliveries: the broker would take it out of its order.
func TestG1G2MessagesOutlastLocksThatAreLost(t *testing.T) {
	inBubble(t, func(w *projectorWorld) {
		const events = 30
		sender, err := w.busOwn.NewSender(tries, nil)
		require.NoError(w, err)
		batch, err := sender.NewMessageBatch(w.Context(), nil)
		require.NoError(w, err)
		for n := 1; n <= events; n++ {
			require.NoError(w, batch.AddMessage(w.encode(event("a", n, "T")), nil))
		}
		heal := w.bus.Inject(servicebus.Faults{LoseLock: 1})
		positions := w.watch("timeline")
		require.NoError(w, sender.SendMessageBatch(w.Context(), batch, nil))
		first, second := w.start(from(tries)), w.start(from(tries))
		w.pass(20 * time.Second)
		require.Zero(w, w.bus.Stats(tries).Completed, "the locks are lost")
		heal()
		w.eventually("everything is completed", func() bool { return w.bus.Stats(tries).Completed == events })
		for _, p := range []*runningProjector{first, second} {
			_, err := p.end()
			require.NoError(w, err)
		}
		require.Zero(w, w.bus.Stats(tries).DeadLettered)
		require.Equal(w, int64(events), w.timeline("a").Events)
		require.Len(w, positions()["a"], 1, "applied at once, and recognised ever after")
	})
}
