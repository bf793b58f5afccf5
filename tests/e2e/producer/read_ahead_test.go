package producer_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// G1, G2 and G3: the next response is requested while events wait for room. Whether it is an event,
// an error or the end of the server's cursor, it counts after them: each is published once and in
// order.
func TestG1G2G3TheNextResponseIsRequestedAhead(t *testing.T) {
	for name, fault := range map[string]struct{ before, during func(w *world.World) }{
		"an event":                   {},
		"an error":                   {before: func(w *world.World) { w.FailMongo(1, 241, "getMore") }},
		"an error the driver hides":  {before: func(w *world.World) { w.FailMongo(1, 6, "getMore") }},
		"the end of the cursor":      {during: func(w *world.World) { w.Mongo.KillCursors() }},
		"the end of the connections": {during: (*world.World).DropMongo},
	} {
		subtest(t, name, world.Options{}, func(w *world.World) {
			var read atomic.Int64
			p := startLeader(w, "a", func(c *producer.Config, o *producer.Options) {
				c.MaxInFlightEvents, c.StallAfter = 1, 0
				onGetMore(o, func(response bson.Raw) {
					events, err := response.Lookup("cursor", "nextBatch").Array().Values()
					if err != nil {
						panic(err)
					}
					read.Add(int64(len(events)))
				})
			})
			p.BusPlug.Pull()
			if fault.before != nil {
				fault.before(w) // the request that is waiting is not affected
			}
			w.InsertMany(3, 1)
			w.Eventually("three events are read, and two of them wait for room", func() bool { return read.Load() == 3 })
			if fault.during != nil {
				fault.during(w)
			}
			w.InsertMany(1, 1)
			if fault.before == nil && fault.during == nil {
				w.Eventually("the fourth is read", func() bool { return read.Load() == 4 })
			}
			require.Empty(w, w.Took())
			p.BusPlug.PlugIn()
			w.Published()
			p.End()
		})
	}
}

// G1 and G2: a response of more than two megabytes is read in pieces, before the next one is
// requested.
func TestG1G2ALargeResponseIsReadInPieces(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		p := startAndPublish(w, "a", nil, 1, 1)
		const events = 11 // of which the last is a piece of its own
		var documents []any
		for n := range events {
			documents = append(documents, bson.D{
				{Key: "aggregateId", Value: "large"}, {Key: "version", Value: n + 1}, {Key: "pad", Value: strings.Repeat("x", 200<<10)},
			})
		}
		w.Inserted["large"] += events
		_, err := w.Events.InsertMany(w.Context(), documents)
		require.NoError(w, err)
		w.Published()
		p.End()
	})
}

// onGetMore has a producer call f with each response to a getMore.
func onGetMore(o *producer.Options, f func(response bson.Raw)) {
	dial := o.Mongo
	o.Mongo = func(c *options.ClientOptions) {
		dial(c)
		c.SetMonitor(&event.CommandMonitor{Succeeded: func(_ context.Context, e *event.CommandSucceededEvent) {
			if e.CommandName == "getMore" {
				f(e.Reply)
			}
		}})
	}
}
