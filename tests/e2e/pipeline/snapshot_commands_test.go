package pipeline_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/producer/store"
	"github.com/sluice-cdc/sluice/producer/store/storetest"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// inserts publishes inserts from now on, with chunks of the size of a snapshot of tests.
func inserts(c *producer.Config, _ *producer.Options) {
	c.Operations, c.SnapshotChunk = []envelope.Operation{envelope.Insert}, 20
}

// slowInserts is like inserts with one document of a snapshot a second.
func slowInserts(c *producer.Config, o *producer.Options) {
	inserts(c, o)
	c.SnapshotRate = 1
}

// snapshotCommand runs `producer snapshot …` with the settings of a producer.
func snapshotCommand(w *world.World, settings func(*producer.Config, *producer.Options), args ...string) world.Operated {
	w.Helper()
	return desk(w, settings, append([]string{"snapshot"}, args...)...)
}

// G1, G2, G3: a snapshot that an operator starts fills a read model that began late, also while
// events come, leaders are killed, and the snapshot is paused and resumed: each event counts once.
func TestG3ASnapshotThatAnOperatorStartsFillsTheReadModel(t *testing.T) {
	world.Each(t, world.Options{Since: "5.0"}, world.Counting, func(w *world.World, setting, collection string) {
		random := seeded(w)
		indexedForSnapshots(w)
		commit := func() { appendEvent(w, fmt.Sprintf("a%02d", random.IntN(30))) }
		for range 200 {
			commit()
		}
		p := w.StartProjector(builds(setting))
		leader := w.StartProducer("p", inserts)
		w.Leads("p")
		started := snapshotCommand(w, inserts, "start", "--readers-know", "--rate", "20")
		require.Zero(w, started.Code, started.Err)
		require.Contains(w, started.Out, "a snapshot begins, of all documents")
		for n := range 4 {
			for range 5 {
				commit()
				w.Pass(time.Duration(random.IntN(200)) * time.Millisecond)
			}
			leader.Vanish()
			leader = w.StartProducer(fmt.Sprint("p", n), inserts)
			w.Leads(fmt.Sprint("p", n))
		}
		paused := snapshotCommand(w, inserts, "pause")
		require.Equal(w, 1, paused.Code)
		require.Contains(w, paused.Err, "producer snapshot pause --yes")
		require.Contains(w, snapshotCommand(w, inserts, "pause", "--yes").Out, "the snapshot is paused")
		commit()
		w.Pass(2 * time.Second)
		require.Contains(w, snapshotCommand(w, inserts, "status").Out, "PAUSED")
		before := w.Checkpoint().Published
		w.Pass(time.Minute)
		require.Equal(w, before, w.Checkpoint().Published, "nothing is published while the snapshot is paused")
		require.Contains(w, snapshotCommand(w, inserts, "resume").Out, "the snapshot continues")
		w.Eventually("the read model has every event", func() bool { return maps.Equal(eventsIn(w, collection), w.Inserted) })
		commit()
		eachEventOnce(w, p, collection)
		require.Contains(w, snapshotCommand(w, inserts, "status").Out, "none is being published")
	})
}

// G3: a snapshot of single aggregates publishes their documents only, and leaves no change out;
// readers recognise the events that they have. It can be stopped.
func TestG3ASnapshotOfSingleAggregatesPublishesTheirDocuments(t *testing.T) {
	world.InVirtualTime(t, world.Options{Since: "5.0"}, func(w *world.World) {
		indexedForSnapshots(w)
		appendEvents(w, 90, 3)
		p := w.StartProjector(builds("timeline"))
		w.StartProducer("p", inserts)
		w.Leads("p")
		appendEvent(w, "17") // which the read model has
		w.Completed(1)
		require.Zero(w, snapshotCommand(w, inserts, "start", "--ids", "a1,17", "--readers-know").Code)
		w.Completed(32)
		require.Equal(w, map[string]int{"a1": 30, "17": 1}, eventsIn(w, "timeline"))
		w.Pass(2 * time.Second) // a heartbeat
		require.Zero(w, snapshotCommand(w, inserts, "start", "--ids", `["a2"]`, "--readers-know", "--rate", "1").Code)
		appendEvent(w, "a0x") // of an aggregate before a2, which no snapshot reaches
		w.Eventually("a change is published beside the snapshot", func() bool { return eventsIn(w, "timeline")["a0x"] == 1 })
		var report struct {
			Snapshot struct {
				Reason      string  `json:"reason"`
				Estimated   int     `json:"estimated"`
				PerSecond   float64 `json:"documents_per_second"`
				SecondsToGo *int    `json:"seconds_to_go"`
				Suppression *int    `json:"suppression_seconds"`
			} `json:"snapshot"`
		}
		w.Pass(5 * time.Second)
		require.NoError(w, json.Unmarshal([]byte(snapshotCommand(w, inserts, "status", "--json").Out), &report))
		require.Equal(w, "aggregates", report.Snapshot.Reason)
		require.Equal(w, 30, report.Snapshot.Estimated)
		require.InDelta(w, 1, report.Snapshot.PerSecond, 0.3)
		require.InDelta(w, 24, *report.Snapshot.SecondsToGo, 8)
		require.Nil(w, report.Snapshot.Suppression)
		require.Contains(w, snapshotCommand(w, inserts, "stop").Out, "the snapshot has ended")
		w.Pass(time.Second)
		stopped := eventsIn(w, "timeline")["a2"]
		require.Less(w, stopped, 30)
		w.Pass(time.Minute)
		require.Equal(w, stopped, eventsIn(w, "timeline")["a2"])
		require.Zero(w, snapshotCommand(w, inserts, "start", "--ids", "a2", "--readers-know").Code, "another one reads the rest")
		w.Eventually("the read model has the rest", func() bool { return eventsIn(w, "timeline")["a2"] == 30 })
		p.MustEnd()
	})
}

// A wrong request is refused with what to do instead, and a request that no leader has taken is
// shown, and can be withdrawn.
func TestSnapshotCommandsRefuseWhatWouldDoHarm(t *testing.T) {
	world.InVirtualTime(t, world.Options{Since: "5.0"}, func(w *world.World) {
		indexedForSnapshots(w)
		refuses := func(want string, args ...string) {
			w.Helper()
			got := snapshotCommand(w, inserts, args...)
			require.NotZero(w, got.Code, got.Out)
			require.Contains(w, got.Err, want)
		}
		refuses("no producer has led stream", "start", "--readers-know")
		for range 3 {
			w.Insert("a")
		}
		first := w.StartProducer("first", slowInserts)
		w.Leads("first")
		refuses("--readers-know", "start")
		refuses("needs a --rate", "start", "--readers-know", "--rate", "-1")
		refuses("needs ids of aggregates", "start", "--readers-know", "--ids", "a,,b")
		refuses(`no document of shop.events has aggregateId "b"`, "start", "--readers-know", "--ids", "a,b")
		for _, command := range []string{"pause", "resume", "stop"} {
			refuses("`producer snapshot start` starts one", command)
		}
		refuses("--accept-repeats", "continue")
		updates := func(c *producer.Config, o *producer.Options) {
			inserts(c, o)
			c.Operations = append(c.Operations, envelope.Update)
		}
		got := snapshotCommand(w, func(c *producer.Config, o *producer.Options) {
			updates(c, o)
			c.AggregateIDPath = "_id.shop"
		}, "start", "--readers-know", "--ids", "a")
		require.Contains(w, got.Err, "Start a snapshot of all documents, without --ids")
		require.Contains(w, snapshotCommand(w, updates, "start", "--readers-know").Err, "Set OPERATIONS=insert")

		require.Zero(w, snapshotCommand(w, inserts, "start", "--readers-know").Code)
		refuses("is being published already", "start", "--readers-know")
		refuses("cannot be cancelled", "stop")
		require.Contains(w, snapshotCommand(w, inserts, "resume").Out, "nothing to do")
		first.End()
		require.Contains(w, snapshotCommand(w, inserts, "pause", "--yes").Out, "the next leader takes the request")
		refuses("`producer snapshot stop` withdraws it", "pause", "--yes")
		require.Contains(w, desk(w, inserts, "status").Out, "NOT TAKEN")
		require.Contains(w, snapshotCommand(w, inserts, "status").Out, "NOT TAKEN by a leader yet")
		require.Contains(w, snapshotCommand(w, inserts, "stop").Out, "the request pause of stream \"shop.events\" is withdrawn")
		require.NotContains(w, snapshotCommand(w, inserts, "status").Out, "NOT TAKEN")
		require.Zero(w, snapshotCommand(w, inserts, "pause", "--yes").Code)
		require.Contains(w, snapshotCommand(w, inserts, "resume").Out, "the request pause of stream \"shop.events\" is withdrawn")
		w.StartProducer("second", inserts)
		w.Published()
	})
}

// G6: no request is carried out after a command has withdrawn it. One that the leader has
// taken cannot be withdrawn while it leads.
func TestG6ARequestThatTheLeaderHasTakenIsNotWithdrawn(t *testing.T) {
	world.InVirtualTime(t, world.Options{Since: "5.0"}, func(w *world.World) {
		indexedForSnapshots(w)
		for range 3 {
			w.Insert("a")
		}
		w.StartProducer("p", slowInserts)
		w.Leads("p")
		require.Zero(w, snapshotCommand(w, inserts, "start", "--readers-know").Code)
		w.DelayMongo(1, time.Minute, "getMore") // meanwhile the leader takes a request and cannot carry it out
		require.Contains(w, snapshotCommand(w, inserts, "pause", "--yes").Err, "has not carried it out yet")
		require.Contains(w, snapshotCommand(w, inserts, "status").Out, "taken by p, and not carried out yet")
		for _, command := range []string{"resume", "stop"} {
			require.Contains(w, snapshotCommand(w, inserts, command).Err, "the leader p has taken the request pause and will carry it out")
		}
		w.Eventually("the snapshot is paused", func() bool {
			return strings.Contains(snapshotCommand(w, inserts, "status").Out, ": done by p")
		})
		require.Contains(w, snapshotCommand(w, inserts, "resume").Out, "the snapshot continues")
		w.Published()
	})
}

// A snapshot that the leader cannot begin is refused by it, and the stream goes on.
func TestASnapshotThatCannotBeginLeavesTheStreamAlone(t *testing.T) {
	world.InVirtualTime(t, world.Options{Since: "5.0"}, func(w *world.World) {
		w.StartProducer("p", inserts)
		w.Leads("p")
		w.Insert("a")
		refused := snapshotCommand(w, inserts, "start", "--readers-know")
		require.Equal(w, 1, refused.Code)
		require.Contains(w, refused.Err, `refused by the leader p: begin a snapshot: no snapshot can be published: the collection has no index`)
		require.Contains(w, snapshotCommand(w, inserts, "status").Out, "REFUSED by p")
		w.Insert("a")
		w.Published()
		indexedForSnapshots(w)
		w.InsertDocument(bson.D{{Key: "aggregateId", Value: "b"}, {Key: "version", Value: 1}})
		require.Zero(w, snapshotCommand(w, inserts, "start", "--readers-know").Code)
	})
}

// G3: a leader that dies before its answer is stored leaves a request that its successor answers,
// and does not carry out a second time.
func TestG3ARequestWithoutAnAnswerIsNotCarriedOutTwice(t *testing.T) {
	world.InVirtualTime(t, world.Options{Since: "5.0"}, func(w *world.World) {
		indexedForSnapshots(w)
		for range 30 {
			w.Insert("a")
		}
		first := w.StartProducer("first", slowInserts)
		w.Leads("first")
		require.Zero(w, snapshotCommand(w, inserts, "start", "--readers-know").Code)
		w.Eventually("a row is published", func() bool { return len(w.Took()) > 0 })
		first.Vanish()
		response, err := w.Blobs().DownloadStream(w.Context(), "sluice", "shop.events.json.request", nil)
		require.NoError(w, err)
		var request map[string]any
		require.NoError(w, json.NewDecoder(response.Body).Decode(&request))
		require.NoError(w, response.Body.Close())
		delete(request, "answeredBy")
		text, err := json.Marshal(request)
		require.NoError(w, err)
		_, err = w.Blobs().UploadBuffer(w.Context(), "sluice", "shop.events.json.request", text, nil)
		require.NoError(w, err)
		w.StartProducer("second", inserts)
		w.Eventually("the request is answered", func() bool {
			return strings.Contains(snapshotCommand(w, inserts, "status").Out, "done by second")
		})
		w.Published()
	})
}

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
				appendEvents(w, 30, 3)
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
				appendEvents(w, 200, 20)
				p := w.StartProjector(builds("ledger"))
				w.Pass(2 * time.Second)
				began := time.Now()
				first := w.StartProducer("first", func(c *producer.Config, o *producer.Options) {
					fromSnapshot(c, o)
					c.SnapshotRate = 10
				})
				w.Leads("first")
				w.Pass(4 * time.Second)
				appendEvent(w, "a0") // which the snapshot has reached
				appendEvent(w, "a9") // which it has not
				w.Pass(4 * time.Second)
				first.End()
				published := w.Bus.Stats(world.Topic).Accepted
				require.GreaterOrEqual(w, published, 30)
				require.Less(w, published, 150)
				appendEvent(w, "a0")
				appendEvent(w, "a9")

				args := map[string][]string{
					"rewind": {"--to", began.UTC().Format(time.RFC3339)}, "set": {fmt.Sprint(w.Checkpoint().Token["_data"])}, "move": {"--to", "vault"},
				}[command]
				done := desk(w, fromSnapshot, append([]string{"token", command}, args...)...)
				require.Zero(w, done.Code, done.Err)
				if command == "rewind" {
					require.Contains(w, done.Out, "generation")
				}
				w.StartProducer("last", func(c *producer.Config, o *producer.Options) {
					fromSnapshot(c, o)
					if command == "move" {
						c.CheckpointStore, c.StartFrom = "vault", "checkpoint"
					}
				})
				eachEventOnce(w, p, "accounts")
			})
		})
	}
}
