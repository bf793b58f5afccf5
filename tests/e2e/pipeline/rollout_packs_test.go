package pipeline_test

import (
	"bytes"
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// beforePacks makes a reader one that does not know packs: to it they have another content type of
// CloudEvents.
func beforePacks(w *world.World) func(*projector.Config, *projector.Options) {
	return func(_ *projector.Config, o *projector.Options) {
		o.ServiceBus = world.BusOptions(olderDialer{w.BusNet})
	}
}

type olderDialer struct{ to options.ContextDialer }

func (d olderDialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := d.to.DialContext(ctx, network, address)
	return &olderConn{Conn: conn}, err
}

// olderConn changes the first letter behind batchPrefix in what it reads.
type olderConn struct {
	net.Conn
	last []byte // as many of the bytes that were read last as the prefix has
}

var batchPrefix = []byte("application/cloudevents-")

func (c *olderConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	for i, letter := range b[:n] {
		if bytes.Equal(c.last, batchPrefix) {
			b[i] = 'x'
		}
		if c.last = append(c.last, letter); len(c.last) > len(batchPrefix) {
			c.last = c.last[1:]
		}
	}
	return n, err
}

// packing has a producer pack the events of three sessions.
func packing(c *producer.Config, _ *producer.Options) {
	c.Pack, c.SessionKey = "auto", envelope.Buckets(3)
}

// sendPacks commits events while the broker is busy, so that they wait, and requires that packs are
// sent, or that none is.
func sendPacks(w *world.World, packs bool) {
	w.Helper()
	published, messages := w.Checkpoint().Published, w.Bus.Stats(world.Topic).Accepted
	end := w.Bus.Inject(servicebus.Faults{Send: servicebus.Fault{Busy: 1}})
	w.InsertMany(100, 10)
	w.Pass(20 * time.Second)
	end()
	w.Eventually("everything is published", func() bool { return w.Checkpoint().Published == published+100 })
	if sent := w.Bus.Stats(world.Topic).Accepted - messages; packs {
		require.Less(w, sent, 50)
	} else {
		require.Equal(w, 100, sent)
	}
}

// emptied waits until projectors have completed every message.
func emptied(w *world.World) {
	w.Helper()
	w.Eventually("the subscription is empty", func() bool { return w.Bus.Stats(world.SubscriptionPath).Active == 0 })
}

// applied requires that the read model holds every event once, and that nothing is dead-lettered.
func applied(w *world.World) {
	w.Helper()
	right(w)
	require.Zero(w, w.Bus.Stats(world.SubscriptionPath).DeadLettered)
}

// packs runs a command about packs, and waits until the leader follows it.
func packs(w *world.World, command ...string) {
	w.Helper()
	require.Zero(w, desk(w, nil, append([]string{"packs"}, command...)...).Code)
	w.Pass(15 * time.Second)
}

// G1, G2, G3: readers that do not know packs are replaced, packs are sent and wait in the queue
// while readers are replaced again, and the way back to readers that do not know packs loses
// nothing.
func TestG1G2G3PacksAreRolledOutAndBack(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		sender := w.StartProducer("a", packing)
		w.Leads("a")
		old := w.StartProjector(beforePacks(w))
		sendPacks(w, false)
		knowing := w.StartProjector(nil) // both versions run for a while
		sendPacks(w, false)
		old.MustEnd()

		packs(w, "on", "--readers-know", "--rules-checked")
		sendPacks(w, true)
		emptied(w)
		knowing.MustEnd()
		sendPacks(w, true) // while no projector runs
		packs(w, "off")
		sendPacks(w, false)
		knowing = w.StartProjector(nil)
		emptied(w)
		require.Zero(w, count(w, "timeline_parked"))

		old = w.StartProjector(beforePacks(w))
		knowing.MustEnd()
		sendPacks(w, false)
		emptied(w)
		old.MustEnd()
		applied(w)
		w.Judge()
		sender.End()
	})
}

// G1, G2, G6: if packs are sent before readers know them, or a reader is taken back while they
// wait, the reader stops in their sessions and names the way out; nothing of them is settled,
// dead-lettered or overtaken, and a reader that knows packs continues.
func TestG1G2G6PacksBeforeReadersKnowThemWait(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		sender := w.StartProducer("a", packing)
		w.Leads("a")
		old := w.StartProjector(beforePacks(w))
		packs(w, "on", "--readers-know", "--rules-checked")
		sendPacks(w, true)
		packs(w, "off")
		sendPacks(w, false) // events behind the packs
		w.Pass(5 * time.Minute)
		stats := w.Bus.Stats(world.SubscriptionPath)
		require.Positive(w, stats.Active)
		require.Zero(w, stats.DeadLettered)
		require.Zero(w, stats.Redelivered)
		require.Contains(w, old.Log.Text(), "deploy the version of the producer, or a newer one, to all projectors")
		require.Contains(w, old.Log.Text(), "application/cloudevents-xatch+json")

		knowing := w.StartProjector(nil)
		old.MustEnd()
		emptied(w)
		knowing.MustEnd()
		applied(w)
		sender.End()
	})
}
