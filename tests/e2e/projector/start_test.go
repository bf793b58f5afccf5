package projector_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/shared/outage"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// A MongoDB that never answered is reported by name within seconds.
func TestAProjectorReportsAMissingMongoDB(t *testing.T) {
	inVirtualTime(t, func(w *world.World) {
		way := &world.Plug{}
		way.Pull()
		p := w.StartProjector(func(_ *projector.Config, o *projector.Options) { o.Mongo = world.MongoOptions(way.Dialer(w.MongoNet)) })
		w.Pass(outage.Patience + time.Millisecond)
		require.Contains(t, p.Log.Text(), `"dependency":"connection to MongoDB","error":"no answer yet: `)
		way.PlugIn()
		publish(w, event("a", 1, "T"))
		w.Completed(1)
		require.Contains(t, p.Log.Text(), `"msg":"dependency works again"`)
	})
}

// So is a subscription that does not exist.
func TestAProjectorReportsAMissingSubscription(t *testing.T) {
	inVirtualTime(t, func(w *world.World) {
		p := w.StartProjector(func(c *projector.Config, _ *projector.Options) { c.Subscription = "nowhere" })
		w.Pass(outage.Patience + time.Millisecond)
		require.Regexp(t, `"dependency":"connection to Service Bus","error":".*nowhere`, p.Log.Text())
		_, _ = p.End()
	})
}
