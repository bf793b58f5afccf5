package producer_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/tests/emulator/netpipe"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// farAway has a producer reach Service Bus with a round trip. Opening a connection takes about ten.
func farAway(w *world.World, roundTrip time.Duration) adjustment {
	w.Helper()
	far := netpipe.Serve(w.T, func(ctx context.Context, l net.Listener) error {
		delayed := netpipe.Delay(l, roundTrip).(*netpipe.DelayListener)
		defer delayed.Wait()
		return w.Bus.Run(ctx, delayed)
	})
	return func(_ *producer.Config, o *producer.Options) { o.ServiceBus = world.BusOptions(far) }
}

// Opening a connection sends nothing, so no fence bounds it: if it takes longer than the fence
// allows, it is completed anyway, or no leader would ever publish.
func TestG1AConnectionMayTakeLongerToOpenThanTheFenceIsAhead(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		p := startAndPublish(w, "a", farAway(w, time.Second), 20, 5)
		require.EqualValues(t, 1, w.Checkpoint().Epoch, "no leader had to step down")
		p.End()
	})
}

// A producer that is asked to stop while it opens a connection does not wait for it.
func TestAProducerStopsWhileItOpensAConnection(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		p := startLeader(w, "a", farAway(w, time.Minute))
		w.InsertMany(1, 1)
		w.Pass(5 * time.Second)
		begun := time.Now()
		p.Stop()
		require.Error(t, <-p.Done, "it could not send what it had read")
		require.Less(t, time.Since(begun), 30*time.Second)
	})
}
