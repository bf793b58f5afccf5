package pipeline_test

import (
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/dns"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/shared/commandline"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// twoStreams returns the settings of a process with two streams, as STREAMS=orders,payments
// produces them.
func twoStreams(w *world.World) []producer.Config {
	w.Helper()
	orders := w.ProducerConfig()
	orders.Streams = []string{"orders", "payments"}
	orders.StatusInterval = time.Second
	payments := orders
	payments.Collection, payments.Stream = "payments", "shop.payments"
	require.NoError(w, orders.Validate())
	require.NoError(w, payments.Validate())
	return []producer.Config{orders, payments}
}

// bothLed waits until both streams have a leader.
func bothLed(w *world.World) {
	w.Helper()
	w.Eventually("both streams are led", func() bool {
		return w.CheckpointOf("shop.events").Token != nil && w.CheckpointOf("shop.payments").Token != nil
	})
}

// insertBoth commits n events of each stream.
func insertBoth(w *world.World, n int) {
	w.Helper()
	for i := range n {
		w.Insert(fmt.Sprintf("order-%d", i%5))
		aggregate := fmt.Sprintf("payment-%d", i%3)
		w.Inserted[aggregate]++
		w.InsertInto(w.Events.Database().Collection("payments"), anEvent(aggregate, w.Inserted[aggregate]))
	}
}

// Two replicas share two streams: each leads one. When one replica is killed, the other one takes
// over its stream, and the stream that it already led is not affected.
func TestG1G2G4TwoStreamsAreSharedByTwoReplicasAndFailOverOneByOne(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		replicas := map[string]*world.Producer{}
		for _, name := range []string{"a", "b"} {
			replicas[name] = w.StartStreams(name, twoStreams(w))
		}
		bothLed(w)
		orders, payments := w.CheckpointOf("shop.events"), w.CheckpointOf("shop.payments")
		require.NotEqual(t, orders.Leader, payments.Leader, "each replica leads one")
		require.EqualValues(t, 1, orders.Epoch)
		require.EqualValues(t, 1, payments.Epoch)
		insertBoth(w, 40)
		w.Published()

		replicas[payments.Leader].Vanish()
		insertBoth(w, 40)
		w.Published()
		after := w.CheckpointOf("shop.payments")
		require.Equal(t, orders.Leader, after.Leader)
		require.EqualValues(t, 2, after.Epoch)
		unmoved := w.CheckpointOf("shop.events")
		require.Equal(t, orders.Leader, unmoved.Leader)
		require.EqualValues(t, 1, unmoved.Epoch, "the other stream is not touched")

		// The killed replica comes back, stands by for both streams, and takes over both when the
		// other one stops.
		replicas[payments.Leader].ComeBack()
		replicas[orders.Leader].End()
		w.Eventually("the one that came back leads both", func() bool {
			return w.CheckpointOf("shop.events").Epoch == 2 && w.CheckpointOf("shop.payments").Epoch == 3
		})
		insertBoth(w, 10)
		w.Published()
		replicas[payments.Leader].End()
	})
}

// A stream that fails stops alone, reports it, and is retried until the cause is fixed; the others
// are not affected.
func TestG6AStreamThatFailsStopsAloneAndComesBack(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		_, err := w.Blobs().CreateContainer(w.Context(), "sluice", nil)
		require.NoError(t, err)
		_, err = w.Blobs().UploadBuffer(w.Context(), "sluice", "shop.payments.json", []byte("no checkpoint"), nil)
		require.NoError(t, err)
		p := w.StartStreams("a", twoStreams(w))
		w.Leads("a")
		w.Insert("order-1")
		w.Published()
		w.Eventually("the failure is reported", func() bool {
			return strings.Contains(p.Log.Text(), `"the stream has failed and will be restarted; the other streams continue"`) &&
				strings.Contains(p.Log.Text(), `"stream":"shop.payments","role":"failed","error":"`)
		})
		require.NotContains(t, p.Log.Text(), `"stream":"shop.events","role":"failed"`)

		_, err = w.Blobs().DeleteBlob(w.Context(), "sluice", "shop.payments.json", nil)
		require.NoError(t, err)
		w.Eventually("the stream is led", func() bool { return w.CheckpointOf("shop.payments").Token != nil })
		require.EqualValues(t, 1, w.CheckpointOf("shop.events").Epoch, "the other one has been led all the time")
		insertBoth(w, 5)
		w.Published()
		p.End()
	})
}

// names replaces DNS for as long as the test runs.
type names struct{ known atomic.Bool }

func (n *names) serve(t *testing.T) {
	given := dns.DefaultResolver
	t.Cleanup(func() { dns.DefaultResolver = given })
	dns.DefaultResolver = &dns.Resolver{
		LookupSRV: func(_, _, name string) (string, []*net.SRV, error) {
			if !n.known.Load() {
				return "", nil, &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
			}
			return "", []*net.SRV{{Target: "mongo." + name, Port: 27017}}, nil
		},
		LookupTXT: func(string) ([]string, error) { return nil, nil },
	}
}

// A stream whose mongodb+srv name cannot be resolved, as after its cluster was deleted, waits for
// it and stops no other stream; a process with only that stream waits as well.
func TestG6AStreamWhoseMongoDBHasNoNameWaitsForItAlone(t *testing.T) {
	for _, alone := range []bool{false, true} {
		t.Run(fmt.Sprint("alone ", alone), func(t *testing.T) {
			var answers names
			answers.serve(t)
			world.InVirtualTime(t, world.Options{}, func(w *world.World) {
				streams := twoStreams(w)
				streams[1].MongoURI = "mongodb+srv://cluster.shop.example/?tls=false"
				if alone {
					streams = streams[1:]
				}
				p := w.StartStreams("a", streams)
				if !alone {
					w.Leads("a")
					w.Insert("order-1")
					w.Published()
				}
				w.Eventually("the cause is logged", func() bool { return strings.Contains(p.Log.Text(), "no such host") })
				w.Pass(10 * time.Minute)
				require.Empty(w, p.Done)
				answers.known.Store(true)
				w.Eventually("the stream is led", func() bool { return w.CheckpointOf("shop.payments").Token != nil })
				p.End()
			})
		})
	}
}

func TestCommandsRequireTheNameOfAStream(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		p := w.StartStreams("a", twoStreams(w))
		bothLed(w)
		for _, name := range []string{"payments", "shop.payments"} {
			o := w.OperateProducer(twoStreams(w), "status", "--stream", name)
			require.Zero(t, o.Code)
			require.Regexp(t, `stream +shop\.payments`, o.Out)
		}
		for _, wrong := range []struct {
			args []string
			want string
		}{
			{[]string{"status"}, "there are several streams: choose one with --stream orders|payments"},
			{[]string{"lease", "break", "--stream", "carts"}, `there is no stream "carts"; the streams are orders, payments`},
			{[]string{"run", "--stream", "orders"}, "not defined: -stream"},
		} {
			o := w.OperateProducer(twoStreams(w), wrong.args...)
			require.Equal(t, commandline.ExitUsage, o.Code)
			require.Contains(t, o.Err, wrong.want)
		}
		p.End()
	})
}
