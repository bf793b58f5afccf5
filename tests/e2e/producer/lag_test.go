package producer_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// An idle stream has no lag, although MongoDB gives a new position only every ten seconds; a stream
// with waiting events has theirs.
func TestAnIdleStreamHasNoLag(t *testing.T) {
	world.InVirtualTime(t, world.Options{ReplicaSet: "high-water marks of a mongos do not stand still"}, func(w *world.World) {
		a := startAndPublish(w, "a", func(c *producer.Config, _ *producer.Options) { c.StatusInterval = 500 * time.Millisecond }, 3, 1)
		w.Pass(2 * time.Second)
		before := len(statuses(w, a))
		w.Pass(20 * time.Second)
		idle := statuses(w, a)[before:]
		require.Greater(t, len(idle), 30)
		oldest := int64(0)
		for _, s := range idle {
			require.GreaterOrEqual(t, s.LagMS, int64(0))
			require.LessOrEqual(t, s.LagMS, int64(1500), "it asks every second")
			oldest = max(oldest, s.BehindMS)
		}
		require.Greater(t, oldest, int64(5000), "its position stands still for longer")

		end := w.Bus.Inject(servicebus.Faults{Send: servicebus.Fault{Delay: time.Minute}})
		w.InsertMany(1, 1)
		w.Pass(8 * time.Second)
		require.Greater(t, lastStatus(w, a).LagMS, int64(6000), "an event waits")
		end()
		w.Eventually("there is no lag again", func() bool { return lastStatus(w, a).LagMS < 1500 })
		a.End()
	})
}
