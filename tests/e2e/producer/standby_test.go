package producer_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// gate is a dialer that can refuse new connections, while existing ones stay.
type gate struct {
	to     options.ContextDialer
	closed atomic.Bool
}

func (g *gate) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	if g.closed.Load() {
		return nil, net.ErrClosed
	}
	return g.to.DialContext(ctx, network, addr)
}

// A standby has its link open even after most of an hour, although Service Bus detaches a link that
// is idle for ten minutes: it sends as soon as it leads.
func TestAStandbyKeepsItsLinkOpen(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		a := startLeader(w, "a", nil)
		way := &gate{to: w.BusNet}
		b := w.StartProducer("b", func(_ *producer.Config, o *producer.Options) { o.ServiceBus = world.BusOptions(way) })
		w.Pass(57 * time.Minute)
		way.closed.Store(true)
		a.Vanish()
		w.Insert("x")
		w.Published()
		require.Equal(w, "b", w.Checkpoint().Leader)
		b.End()
	})
}
