package producer_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// headroomStatus is the part of the status record about the oplog.
type headroomStatus struct {
	Seconds *int64 `json:"oplog_headroom_seconds"`
	Note    string `json:"oplog_headroom_note"`
	Role    string `json:"role"`
}

// lastStatus returns the newest status record in the log.
func lastStatus(p *world.Producer) (s headroomStatus) {
	for line := range strings.Lines(p.Log.Text()) {
		var record struct {
			Msg    string          `json:"msg"`
			Status *headroomStatus `json:"status"`
		}
		if json.Unmarshal([]byte(line), &record) == nil && record.Status != nil {
			s = *record.Status
		}
	}
	return s
}

// G6: the remaining history is reported before it is lost, in the record that alerts use: the
// source keeps writing, Service Bus accepts nothing, and the oplog's beginning comes nearer.
func TestG6TheOplogsHeadroomIsReportedWhileItShrinks(t *testing.T) {
	world.InVirtualTime(t, world.Options{ReplicaSet: readsOplog, Mongo: mongo.Options{OplogEntries: 300}}, func(w *world.World) {
		other := w.Events.Database().Collection("other")
		for range 60 {
			_, err := other.InsertOne(w.Context(), bson.D{{Key: "x", Value: 1}})
			require.NoError(t, err)
			w.Pass(10 * time.Second)
		}
		p := w.StartProducer("a", func(c *producer.Config, _ *producer.Options) {
			c.StatusInterval = 5 * time.Second
			c.StallAfter = 0
			c.MaxInFlightEvents = 50
		})
		w.Leads("a")
		w.Eventually("the headroom is reported", func() bool { return lastStatus(p).Seconds != nil })
		require.InDelta(t, 600, *lastStatus(p).Seconds, 60)

		p.BusPlug.Pull()
		w.InsertMany(200, 3)
		w.Pass(30 * time.Second)
		require.InDelta(t, 600, *lastStatus(p).Seconds, 60, "the oplog is not full yet: its beginning stays")
		for range 120 {
			if s := lastStatus(p).Seconds; s != nil && *s < 60 {
				break
			}
			w.InsertMany(1, 3)
			w.Pass(15 * time.Second)
		}
		require.Less(t, *lastStatus(p).Seconds, int64(60), "nearly used up")
		require.Positive(t, *lastStatus(p).Seconds)
		p.BusPlug.PlugIn()
		w.Published()
		w.Eventually("it grows again", func() bool { s := lastStatus(p).Seconds; return s != nil && *s > 60 })
		p.End()
	})
}

func TestAProducerWithoutAccessToTheOplogReportsIt(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		w.FailMongo(4, 13, "find") // reads are tried twice; the first one reads the cluster's identity
		p := w.StartProducer("a", func(c *producer.Config, _ *producer.Options) { c.StatusInterval = 5 * time.Second })
		w.Leads("a")
		w.Eventually("it is reported", func() bool { return lastStatus(p).Role == "leader" && lastStatus(p).Note == "needs read on local" })
		require.Nil(t, lastStatus(p).Seconds)
		p.End()
	})
}
