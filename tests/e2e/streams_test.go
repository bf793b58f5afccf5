package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/shared/commandline"
	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
)

// twoStreams are the settings of a process with two streams, as STREAMS=orders,payments makes them.
func (w *producerWorld) twoStreams() []producer.Config {
	w.Helper()
	orders := w.config()
	orders.Streams = []string{"orders", "payments"}
	orders.StatusInterval = time.Second
	payments := orders
	payments.Collection, payments.Stream = "payments", "shop.payments"
	require.NoError(w, orders.Validate())
	require.NoError(w, payments.Validate())
	return []producer.Config{orders, payments}
}

// insertBoth commits n events of each stream.
func (w *producerWorld) insertBoth(n int) {
	w.Helper()
	for i := range n {
		w.insert(fmt.Sprintf("order-%d", i%5))
		aggregate := fmt.Sprintf("payment-%d", i%3)
		w.inserted[aggregate]++
		w.insertInto(w.events.Database().Collection("payments"), bson.D{
			{Key: "aggregateId", Value: aggregate}, {Key: "version", Value: w.inserted[aggregate]}, {Key: "type", Value: "Paid"},
		})
	}
}

// Two replicas share two streams: each leads one. When one replica is killed the other takes its stream over, and the stream
// that it led already notices nothing.
func TestG1G2G4TwoStreamsAreSharedByTwoReplicasAndFailOverOneByOne(t *testing.T) {
	inProducerWorld(t, mongo.Options{}, func(w *producerWorld) {
		replicas := map[string]*runningProducer{}
		for _, name := range []string{"a", "b"} {
			replicas[name] = w.startStreams(name, w.twoStreams())
		}
		w.eventually("both streams are led", func() bool {
			return w.checkpointOf("shop.events").Token != nil && w.checkpointOf("shop.payments").Token != nil
		})
		orders, payments := w.checkpointOf("shop.events"), w.checkpointOf("shop.payments")
		require.NotEqual(t, orders.Leader, payments.Leader, "each replica leads one")
		require.EqualValues(t, 1, orders.Epoch)
		require.EqualValues(t, 1, payments.Epoch)
		w.insertBoth(40)
		w.published()

		replicas[payments.Leader].vanish()
		w.insertBoth(40)
		w.published()
		after := w.checkpointOf("shop.payments")
		require.Equal(t, orders.Leader, after.Leader)
		require.EqualValues(t, 2, after.Epoch)
		unmoved := w.checkpointOf("shop.events")
		require.Equal(t, orders.Leader, unmoved.Leader)
		require.EqualValues(t, 1, unmoved.Epoch, "the other stream is not touched")

		// It comes back, stands by for both, and takes over both when the other one stops.
		replicas[payments.Leader].comeBack()
		replicas[orders.Leader].end()
		w.eventually("the one that came back leads both", func() bool {
			return w.checkpointOf("shop.events").Epoch == 2 && w.checkpointOf("shop.payments").Epoch == 3
		})
		w.insertBoth(10)
		w.published()
		replicas[payments.Leader].end()
	})
}

// A stream that fails stops alone, says so, and is tried again until what ails it is mended; the others never notice.
func TestG6AStreamThatFailsStopsAloneAndComesBack(t *testing.T) {
	inProducerWorld(t, mongo.Options{}, func(w *producerWorld) {
		_, err := w.blobs().CreateContainer(w.Context(), "sluice", nil)
		require.NoError(t, err)
		_, err = w.blobs().UploadBuffer(w.Context(), "sluice", "shop.payments.json", []byte("no checkpoint"), nil)
		require.NoError(t, err)
		p := w.startStreams("a", w.twoStreams())
		w.leads("a")
		w.insert("order-1")
		w.published()
		w.eventually("the failure is told", func() bool {
			return strings.Contains(p.log.text(), `"the stream has failed and will be restarted; the other streams go on"`) &&
				strings.Contains(p.log.text(), `"stream":"shop.payments","role":"failed","error":"`)
		})
		require.NotContains(t, p.log.text(), `"stream":"shop.events","role":"failed"`)

		_, err = w.blobs().DeleteBlob(w.Context(), "sluice", "shop.payments.json", nil)
		require.NoError(t, err)
		w.eventually("the stream is led", func() bool { return w.checkpointOf("shop.payments").Token != nil })
		require.EqualValues(t, 1, w.checkpointOf("shop.events").Epoch, "the other one has been led all the time")
		w.insertBoth(5)
		w.published()
		p.end()
	})
}

func TestOperatorSaysWhichStream(t *testing.T) {
	inProducerWorld(t, mongo.Options{}, func(w *producerWorld) {
		p := w.startStreams("a", w.twoStreams())
		w.eventually("both streams are led", func() bool {
			return w.checkpointOf("shop.events").Token != nil && w.checkpointOf("shop.payments").Token != nil
		})
		for _, name := range []string{"payments", "shop.payments"} {
			o := w.operateOn(w.twoStreams(), "status", "--stream", name)
			require.Zero(t, o.code)
			require.Regexp(t, `stream +shop\.payments`, o.out)
		}
		for _, wrong := range []struct {
			args []string
			says string
		}{
			{[]string{"status"}, "there are several streams: say which with --stream orders|payments"},
			{[]string{"lease", "break", "--stream", "carts"}, `there is no stream "carts"; there is orders, payments`},
			{[]string{"run", "--stream", "orders"}, "not defined: -stream"},
		} {
			o := w.operateOn(w.twoStreams(), wrong.args...)
			require.Equal(t, commandline.ExitUsage, o.code)
			require.Contains(t, o.err, wrong.says)
		}
		p.end()
	})
}
