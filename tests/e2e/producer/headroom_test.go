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

// leaderStatus is a leader's status record in its log.
type leaderStatus struct {
	Role     string `json:"role"`
	LagMS    int64  `json:"lag_ms"`
	BehindMS int64  `json:"behind_ms"`
	Headroom *int64 `json:"oplog_headroom_seconds"`
	Note     string `json:"oplog_headroom_note"`
}

// statuses returns the status records of a leader.
func statuses(w *world.World, p *world.Producer) (all []leaderStatus) {
	w.Helper()
	for line := range strings.Lines(p.Log.Text()) {
		var record struct {
			Msg    string
			Status leaderStatus
		}
		require.NoError(w, json.Unmarshal([]byte(line), &record))
		if record.Msg == "status" && record.Status.Role == "leader" {
			all = append(all, record.Status)
		}
	}
	return all
}

// lastStatus returns the newest of them; the zero status without one.
func lastStatus(w *world.World, p *world.Producer) (s leaderStatus) {
	w.Helper()
	if all := statuses(w, p); len(all) > 0 {
		s = all[len(all)-1]
	}
	return s
}

// G6: the remaining history is reported before it is lost, in the record that alerts use: the
// source keeps writing, Service Bus accepts nothing, and the oplog's beginning comes nearer.
func TestG6TheOplogsHeadroomIsReportedWhileItShrinks(t *testing.T) {
	world.InVirtualTime(t, world.Options{ReplicaSet: readsOplog, Mongo: mongo.Options{OplogEntries: 300}}, func(w *world.World) {
		other := w.Events.Database().Collection("other")
		for range 60 {
			w.InsertInto(other, bson.D{{Key: "x", Value: 1}})
			w.Pass(10 * time.Second)
		}
		p := startLeader(w, "a", func(c *producer.Config, _ *producer.Options) {
			c.StatusInterval = 5 * time.Second
			c.StallAfter = 0
			c.MaxInFlightEvents = 50
		})
		w.Eventually("the headroom is reported", func() bool { return lastStatus(w, p).Headroom != nil })
		require.InDelta(t, 600, *lastStatus(w, p).Headroom, 60)

		p.BusPlug.Pull()
		w.InsertMany(200, 3)
		w.Pass(30 * time.Second)
		require.InDelta(t, 600, *lastStatus(w, p).Headroom, 60, "the oplog is not full yet: its beginning stays")
		for range 120 {
			if s := lastStatus(w, p).Headroom; s != nil && *s < 60 {
				break
			}
			w.InsertMany(1, 3)
			w.Pass(15 * time.Second)
		}
		require.Less(t, *lastStatus(w, p).Headroom, int64(60), "nearly used up")
		require.Positive(t, *lastStatus(w, p).Headroom)
		p.BusPlug.PlugIn()
		w.Published()
		w.Eventually("it grows again", func() bool { s := lastStatus(w, p).Headroom; return s != nil && *s > 60 })
		p.End()
	})
}

func TestAProducerWithoutAccessToTheOplogReportsIt(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		w.FailMongo(4, 13, "find") // reads are tried twice; the first one reads the cluster's identity
		p := startLeader(w, "a", func(c *producer.Config, _ *producer.Options) { c.StatusInterval = 5 * time.Second })
		w.Eventually("it is reported", func() bool { return lastStatus(w, p).Note == "needs read on local" })
		require.Nil(t, lastStatus(w, p).Headroom)
		p.End()
		w.FailMongo(2, 13, "find")
		got := operate(w, "status")
		require.Empty(t, got.Err)
		require.Contains(t, got.Out, "unknown: needs read on local")
	})
}
