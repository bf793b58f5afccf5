package producer_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// The commands report a stream that an event has stopped as stopped, with the event and the remedy,
// until an operator has moved past it, whether or not a replica holds the lease at that moment.
func TestTheCommandsReportWhyAStreamIsStopped(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		a := startAndPublish(w, "a", nil, 3, 1)
		operate(w, "status").succeeds()
		require.Regexp(t, `ok +last failure +none`, operate(w, "doctor").Out)

		w.InsertDocument(bigEvent(t, "grown", 300<<10))
		require.Error(t, a.Failed())
		for range 2 { // the second time another replica has tried
			status := operate(w, "status")
			require.Empty(t, status.Err)
			status.reports(1, `state +STOPPED`,
				`(?s)last failure .* of a in epoch \d\n.*event is too large.* of aggregate "grown" .*set ON_OVERSIZE=claimcheck`)
			operate(w, "doctor").reports(1, `PROBLEM +last failure +the stream has been stopped since .* of aggregate "grown"`)
			require.Error(t, w.StartProducer("a", nil).Failed())
		}
		require.Contains(t, blobNames(w, "sluice"), "shop.events.json.failure", "beside the checkpoint, which no failure touches")

		b := startLeader(w, "b", func(c *producer.Config, _ *producer.Options) { c.OnOversize = "claimcheck" })
		checkpointed(w, 4)
		operate(w, "status").succeeds("(over: the stream has gone on since)")
		require.Regexp(t, `ok +last failure +at .* the stream has gone on since`, operate(w, "doctor").Out)
		b.End()

		require.Contains(t, operate(w, "status").Out, "(over: the checkpoint is past it now)", "there is no leader, so the stream does not continue")
		require.Regexp(t, `ok +last failure +at .* the checkpoint is past it now`, operate(w, "doctor").Out)
		leaderless := operate(w, "status", "--json")
		leaderless.reports(1)
		var status struct {
			Leads, Stopped bool
			LastFailure    struct{ Instance, Error string } `json:"last_failure"`
		}
		require.NoError(t, json.Unmarshal([]byte(leaderless.Out), &status))
		require.False(t, status.Leads)
		require.False(t, status.Stopped)
		require.Equal(t, "a", status.LastFailure.Instance)
		require.Contains(t, status.LastFailure.Error, "too large")
	})
}

// A leader that steps down leads again, and its stream continues.
func TestTheCommandsReportALeaderThatSteppedDown(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		a := startLeader(w, "a", nil)
		end := w.Bus.Inject(servicebus.Faults{Send: servicebus.Fault{Drop: 1}})
		w.InsertMany(3, 1)
		w.Eventually("it steps down, and leads again", func() bool { return w.Checkpoint().Epoch > 1 })
		end()
		w.Published()
		checkpointed(w, 3)
		operate(w, "status").reports(0, `(?s)last failure +\S+, of a in epoch \d+ \(over: .*stepping down`)
		a.End()
	})
}
