package pipeline_test

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/producer/store"
	"github.com/sluice-cdc/sluice/producer/store/storetest"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// severed lets a number of requests to Blob storage through. Each later one waits until its context
// ends.
type severed struct {
	policy.Transporter
	remaining *atomic.Int64
}

func (s severed) Do(r *http.Request) (*http.Response, error) {
	if s.remaining.Add(-1) < 0 {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	return s.Transporter.Do(r)
}

// G1: a leader that dies after any of its first requests to the checkpoint's store leaves no stream
// that has begun without its snapshot.
func TestG1AStreamBeginsInTheSameWriteAsItsSnapshot(t *testing.T) {
	for n := range int64(16) {
		t.Run(fmt.Sprint(n, " requests"), func(t *testing.T) {
			world.InVirtualTime(t, world.Options{Since: "5.0"}, func(w *world.World) {
				indexedForSnapshots(w)
				versions := map[string]int{}
				for i := range 30 {
					appendEvent(w, versions, fmt.Sprint("a", i%3))
				}
				var remaining atomic.Int64
				remaining.Store(n)
				first := w.StartProducer("first", func(c *producer.Config, o *producer.Options) {
					fromSnapshot(c, o)
					o.Blob.Transport = severed{o.Blob.Transport, &remaining}
				})
				w.Pass(2 * time.Second)
				first.Vanish()
				w.StartProducer("second", fromSnapshot)
				w.Eventually("every document is published", func() bool { return w.Bus.Stats(world.Topic).Accepted >= 30 })
			})
		})
	}
}

// G1, G3: a checkpoint that an operator moves within a snapshot keeps it: the next leader publishes
// the rest of the documents, and each event counts once.
func TestG1ACheckpointThatIsMovedKeepsItsSnapshot(t *testing.T) {
	for _, command := range []string{"rewind", "set", "move"} {
		t.Run(command, func(t *testing.T) {
			world.InVirtualTime(t, world.Options{Since: "5.0"}, func(w *world.World) {
				vault := &storetest.Memory{}
				w.Store = func(string) (store.Store, error) { return vault, nil }
				indexedForSnapshots(w)
				versions := map[string]int{}
				for n := range 200 {
					appendEvent(w, versions, fmt.Sprintf("a%02d", n%20))
				}
				p := w.StartProjector(builds("ledger"))
				slow := func(c *producer.Config, o *producer.Options) {
					fromSnapshot(c, o)
					c.SnapshotRate = 10
				}
				w.Pass(2 * time.Second)
				began := time.Now()
				first := w.StartProducer("first", slow)
				w.Leads("first")
				w.Pass(4 * time.Second)
				appendEvent(w, versions, "a00") // which the snapshot has reached
				appendEvent(w, versions, "a19") // which it has not
				w.Pass(4 * time.Second)
				first.End()
				published := w.Bus.Stats(world.Topic).Accepted
				require.GreaterOrEqual(w, published, 30)
				require.Less(w, published, 150)
				appendEvent(w, versions, "a00")
				appendEvent(w, versions, "a19")

				config := w.ProducerConfig()
				fromSnapshot(&config, nil)
				operate := func(args ...string) string {
					w.Helper()
					done := w.OperateProducer([]producer.Config{config}, append([]string{"token"}, args...)...)
					require.Zero(w, done.Code, done.Err)
					return done.Out
				}
				last := fromSnapshot
				switch command {
				case "rewind":
					require.Contains(w, operate("rewind", "--to", began.UTC().Format(time.RFC3339)), "generation")
				case "set":
					operate("set", fmt.Sprint(w.Checkpoint().Token["_data"]))
				case "move":
					operate("move", "--to", "vault")
					last = func(c *producer.Config, o *producer.Options) {
						fromSnapshot(c, o)
						c.CheckpointStore, c.StartFrom = "vault", "checkpoint"
					}
				}
				w.StartProducer("last", last)
				eachEventOnce(w, p, versions)
			})
		})
	}
}
