package producer_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/tests/emulator/netpipe"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// overSlow gives f the settings of a producer whose connection to Service Bus has a round trip.
// Opening a connection takes about ten.
func overSlow(w *world.World, roundTrip time.Duration, f func(settings func(*producer.Config, *producer.Options))) {
	far := netpipe.Listen("far:5672")
	delayed := netpipe.Delay(far, roundTrip).(*netpipe.DelayListener)
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.Context()))
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := w.Bus.Run(ctx, delayed); err != nil {
			w.Errorf("run Service Bus: %v", err)
		}
		delayed.Wait()
	})
	defer func() {
		cancel()
		serving.Wait()
	}()
	f(func(_ *producer.Config, o *producer.Options) {
		o.ServiceBus = &azservicebus.ClientOptions{
			NewWebSocketConn: func(ctx context.Context, _ azservicebus.NewWebSocketConnArgs) (net.Conn, error) {
				return far.DialContext(ctx, "", "")
			},
		}
	})
}

// Opening a connection sends nothing, so no fence bounds it: if it takes longer than the fence
// allows, it is completed anyway, or no leader would ever publish.
func TestG1AConnectionMayTakeLongerToOpenThanTheFenceIsAhead(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		overSlow(w, time.Second, func(settings func(*producer.Config, *producer.Options)) {
			p := w.StartProducer("a", settings)
			w.Leads("a")
			w.InsertMany(20, 5)
			w.Published()
			require.EqualValues(t, 1, w.Checkpoint().Epoch, "no leader had to step down")
			p.End()
		})
	})
}

// A producer that is asked to stop while it opens a connection does not wait for it.
func TestAProducerStopsWhileItOpensAConnection(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		overSlow(w, time.Minute, func(settings func(*producer.Config, *producer.Options)) {
			p := w.StartProducer("a", settings)
			w.Leads("a")
			w.InsertMany(1, 1)
			w.Pass(5 * time.Second)
			begun := time.Now()
			p.Stop()
			require.Error(t, <-p.Done, "it could not send what it had read")
			require.Less(t, time.Since(begun), 30*time.Second)
		})
	})
}
