package producer_test

import (
	"bytes"
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/producer/store"
	mongodbstore "github.com/sluice-cdc/sluice/producer/store/mongodb"
	"github.com/sluice-cdc/sluice/shared/mongodb"
	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
	"github.com/sluice-cdc/sluice/tests/emulator/netpipe"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// side is the dialer of a client, which is on one side of a network partition.
type side struct {
	to atomic.Pointer[netpipe.Listener]
}

func (s *side) DialContext(ctx context.Context, _, _ string) (net.Conn, error) {
	return s.to.Load().DialContext(ctx, "tcp", "")
}

// apartStore is a store that is closed as the built-in one is.
type apartStore struct{ *mongodbstore.Store }

func (s apartStore) Close() error {
	return mongodb.Disconnect(context.Background(), s.Client(), time.Second)
}

// G4: a leader whose checkpoint is on a primary that the majority has left writes on, and none of
// its writes counts: it stops at its fence, while the other replica leads with the majority. What
// it wrote is rolled back. A replica that sees nothing but that primary never leads.
func TestG4AStalePrimaryOfTheCheckpointMakesNoLeader(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		majority := mongo.New(mongo.Options{Host: "checkpoints:27017"})
		stale := mongo.New(mongo.Options{Host: "checkpoints:27017"})
		nets := map[*mongo.Server]*netpipe.Listener{}
		for _, s := range []*mongo.Server{majority, stale} {
			nets[s] = netpipe.Serve(w.T, s.Run)
		}
		inMajority := func(of *side) adjustment {
			of.to.Store(nets[majority])
			return func(c *producer.Config, o *producer.Options) {
				c.CheckpointStore = "apart"
				o.Store = func(string) (store.Store, error) {
					s, err := mongodbstore.Open(mongo.URI("checkpoints:27017"), "sluice", func(o *options.ClientOptions) { o.SetDialer(of) })
					return apartStore{s}, err
				}
			}
		}
		var aSide, bSide side
		published := func() {
			w.Helper()
			before := w.Bus.Stats(world.Topic).Accepted
			w.Insert("account")
			w.Eventually("it is published", func() bool { return w.Bus.Stats(world.Topic).Accepted > before })
		}
		a := w.StartProducer("a", inMajority(&aSide))
		w.Eventually("it leads", func() bool { return strings.Count(a.Log.Text(), `"msg":"leading"`) == 1 })
		published()
		b := w.StartProducer("b", inMajority(&bSide))
		w.Pass(5 * time.Second)

		var saved bytes.Buffer
		require.NoError(t, majority.Save(&saved))
		require.NoError(t, stale.Restore(&saved))
		rejoin := stale.Isolate()
		aSide.to.Store(nets[stale])
		majority.DropConnections()
		for range 60 { // so that the outcome of its writes is unknown
			w.Pass(250 * time.Millisecond)
			stale.DropConnections()
		}
		require.Contains(t, a.Log.Text(), "leadership ended, standing by")
		for range 30 {
			published()
			w.Pass(2 * time.Second)
		}
		require.Contains(t, b.Log.Text(), `"msg":"leading"`)
		require.Equal(t, 1, strings.Count(a.Log.Text(), `"msg":"leading"`))

		rejoin()
		aSide.to.Store(nets[majority])
		stale.DropConnections()
		b.End()
		published()
		require.Equal(t, 2, strings.Count(a.Log.Text(), `"msg":"leading"`))
		w.Judge()
		a.End()
	})
}
