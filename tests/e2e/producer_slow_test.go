package e2e

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
	"github.com/sluice-cdc/sluice/tests/emulator/netpipe"
)

// overSlow gives f the settings of a producer whose way to Service Bus has a round trip. Opening a connection takes some ten.
func (w *producerWorld) overSlow(roundTrip time.Duration, f func(settings func(*producer.Config, *producer.Options))) {
	far := netpipe.Listen("far:5672")
	delayed := netpipe.Delay(far, roundTrip).(*netpipe.DelayListener)
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.Context()))
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := w.bus.Run(ctx, delayed); err != nil {
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

// Opening a connection sends nothing, so no fence bounds it: where it takes longer than the fence is ahead, it comes to its end
// all the same, or nothing would be published under any leader.
func TestG1AConnectionMayTakeLongerToOpenThanTheFenceIsAhead(t *testing.T) {
	inProducerWorld(t, mongo.Options{}, func(w *producerWorld) {
		w.overSlow(time.Second, func(settings func(*producer.Config, *producer.Options)) {
			p := w.start("a", settings)
			w.leads("a")
			w.insertMany(20, 5)
			w.published()
			require.EqualValues(t, 1, w.checkpoint().Epoch, "nobody had to step down")
			p.end()
		})
	})
}

// A producer that is asked to stop while it opens a connection does not wait for it.
func TestAProducerStopsWhileItOpensAConnection(t *testing.T) {
	inProducerWorld(t, mongo.Options{}, func(w *producerWorld) {
		w.overSlow(time.Minute, func(settings func(*producer.Config, *producer.Options)) {
			p := w.start("a", settings)
			w.leads("a")
			w.insertMany(1, 1)
			w.pause(5 * time.Second)
			begun := time.Now()
			p.stop()
			require.Error(t, <-p.done, "it could not send what it had read")
			require.Less(t, time.Since(begun), 30*time.Second)
		})
	})
}
