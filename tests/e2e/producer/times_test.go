package producer_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// The doctor rehearses heartbeats, reports the election times that storage could sustain, finds
// settings that are too short for it, and accepts those that it proposes instead. In virtual time a
// round trip takes exactly its configured time.
func TestTheDoctorReportsTheTimesThatStorageSustains(t *testing.T) {
	const ms = time.Millisecond
	times := func(heartbeat, fence, takeover, poll time.Duration) adjustment {
		return func(c *producer.Config, _ *producer.Options) {
			c.HeartbeatInterval, c.FenceAfter, c.TakeoverAfter, c.StandbyPoll = heartbeat*ms, fence*ms, takeover*ms, poll*ms
		}
	}
	tight := times(1000, 1500, 3000, 500)
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		startLeader(w, "a", nil).End()
		for _, c := range []struct {
			storage time.Duration
			change  adjustment
			code    int
			want    string
		}{
			{4 * ms, nil, 0, `ok +leadership times +of 100 heartbeats, half took at most 4ms and all but one at most 4ms; the present times tolerate 594ms: ` +
				`HEARTBEAT_INTERVAL=1s FENCE_AFTER=2\.5s TAKEOVER_AFTER=4s STANDBY_POLL=500ms\. The shortest sufficient times: ` +
				`HEARTBEAT_INTERVAL=500ms FENCE_AFTER=1s TAKEOVER_AFTER=1\.5s STANDBY_POLL=250ms`},
			{150 * ms, tight, 0, `ok +leadership times +of 20 heartbeats.*the present times tolerate 156ms`},
			{200 * ms, tight, 1, `PROBLEM +leadership times +of 15 heartbeats, half took at most 200ms and all but one at most 200ms; ` +
				`FENCE_AFTER=1\.5s and HEARTBEAT_INTERVAL=1s tolerate at most 156ms.*To fix it: set FENCE_AFTER=1\.6s TAKEOVER_AFTER=3\.1s or more, or the shortest sufficient times, HEARTBEAT_INTERVAL=500ms FENCE_AFTER=1\.1s `},
			{700 * ms, nil, 1, `PROBLEM +leadership times +of 5 heartbeats.*set FENCE_AFTER=2\.8s TAKEOVER_AFTER=4\.3s or more`},
			{200 * ms, times(1000, 1600, 3100, 500), 0, `ok +leadership times .*The shortest sufficient times: ` +
				`HEARTBEAT_INTERVAL=500ms FENCE_AFTER=1\.1s TAKEOVER_AFTER=1\.6s STANDBY_POLL=250ms`},
			{200 * ms, times(500, 1100, 1600, 250), 0, `ok +leadership times`},
		} {
			w.OperatorDelay = c.storage
			operateWith(w, c.change, "doctor").reports(c.code, c.want)
		}
		require.Equal(t, []string{"shop.events.json", "shop.events.json.began"}, blobNames(w, "sluice"), "the scratch blob is removed")
	})
}
