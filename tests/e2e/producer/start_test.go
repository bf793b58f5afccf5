package producer_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/shared/outage"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// A MongoDB that never answered is reported by name within seconds, and no stream begins: its
// checkpoint would claim that it had. Its replica takes no part in the election.
func TestNoStreamBeginsBeforeMongoDBHasAnswered(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		way := &world.Plug{}
		way.Pull()
		a := w.StartProducer("a", func(_ *producer.Config, o *producer.Options) { o.Mongo = world.MongoOptions(way.Dialer(w.MongoNet)) })
		w.Pass(outage.Patience + time.Millisecond)
		require.Contains(t, a.Log.Text(), `"dependency":"connection to MongoDB","error":"no answer yet: `)
		w.Pass(time.Minute)
		require.Empty(t, blobNames(w, "sluice"))
		require.NotContains(t, a.Log.Text(), "no checkpoint found")
		way.PlugIn()
		w.Leads("a")
		require.Contains(t, a.Log.Text(), `"msg":"dependency works again"`)
		a.End()
	})
}

// An idle leader detects problems with its connection to Service Bus before the first event
// arrives.
func TestAnIdleLeaderComplainsOfAMissingTopic(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		a := startLeader(w, "a", func(c *producer.Config, _ *producer.Options) { c.Topic = "nowhere" })
		w.Pass(outage.Patience)
		require.Regexp(t, `"dependency":"connection to Service Bus","error":".*nowhere`, a.Log.Text())
		a.End()
	})
}

// Storage that accepts a request and never answers is reported as well.
func TestSilentStorageIsReported(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		way := &world.Plug{}
		way.Pull() // requests hang
		a := w.StartProducer("a", func(_ *producer.Config, o *producer.Options) {
			o.Blob = world.BlobOptions(way.Transport(w.Blob.Transport()))
		})
		w.Pass(outage.Patience + time.Millisecond)
		require.Contains(t, a.Log.Text(), `"dependency":"Blob storage","error":"no answer yet"`)
		way.PlugIn()
		w.Leads("a")
		a.End()
	})
}
