package e2e

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
)

// headroomStatus is what the status record says of the oplog.
type headroomStatus struct {
	Seconds *int64 `json:"oplog_headroom_seconds"`
	Note    string `json:"oplog_headroom_note"`
	Role    string `json:"role"`
}

// lastStatus is the newest status record in the log.
func (p *runningProducer) lastStatus() (s headroomStatus) {
	p.w.Helper()
	for line := range strings.Lines(p.log.text()) {
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

// G6: how much history is left is told before it is lost, in the very record that alerts are made of: here the source
// writes on, Service Bus takes nothing, and the oplog's beginning comes nearer.
func TestG6TheOplogsHeadroomIsToldWhileItShrinks(t *testing.T) {
	inProducerWorld(t, mongo.Options{OplogEntries: 300}, func(w *producerWorld) {
		other := w.events.Database().Collection("other")
		for range 60 {
			_, err := other.InsertOne(w.Context(), bson.D{{Key: "x", Value: 1}})
			require.NoError(t, err)
			w.pause(10 * time.Second)
		}
		p := w.start("a", func(c *producer.Config, _ *producer.Options) {
			c.StatusInterval = 5 * time.Second
			c.StallAfter = 0
			c.MaxInFlightEvents = 50
		})
		w.leads("a")
		w.eventually("the headroom is told", func() bool { return p.lastStatus().Seconds != nil })
		require.InDelta(t, 600, *p.lastStatus().Seconds, 60)

		p.busPlug.pull()
		w.insertMany(200, 3)
		w.pause(30 * time.Second)
		require.InDelta(t, 600, *p.lastStatus().Seconds, 60, "the oplog is not full yet: its beginning stays")
		for range 120 {
			if s := p.lastStatus().Seconds; s != nil && *s < 60 {
				break
			}
			w.insertMany(1, 3)
			w.pause(15 * time.Second)
		}
		require.Less(t, *p.lastStatus().Seconds, int64(60), "nearly used up")
		require.Positive(t, *p.lastStatus().Seconds)
		p.busPlug.plugIn()
		w.published()
		w.eventually("it grows again", func() bool { s := p.lastStatus().Seconds; return s != nil && *s > 60 })
		p.end()
	})
}

func TestAProducerThatMayNotReadTheOplogSaysSo(t *testing.T) {
	inProducerWorld(t, mongo.Options{}, func(w *producerWorld) {
		w.failCommand("find", 13)
		p := w.start("a", func(c *producer.Config, _ *producer.Options) { c.StatusInterval = 5 * time.Second })
		w.leads("a")
		w.eventually("it is told", func() bool { return p.lastStatus().Role == "leader" && p.lastStatus().Note == "needs read on local" })
		require.Nil(t, p.lastStatus().Seconds)
		p.end()
	})
}
