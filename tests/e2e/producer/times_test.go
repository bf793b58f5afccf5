package producer_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// The doctor rehearses heartbeats, reports the election times that storage could sustain, and finds
// settings that are too short for it. In virtual time a round trip takes exactly its configured
// time.
func TestTheDoctorReportsTheTimesThatStorageSustains(t *testing.T) {
	tight := func(c *producer.Config) { c.FenceAfter, c.TakeoverAfter = 1500*time.Millisecond, 3*time.Second }
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		p := w.StartProducer("a", nil)
		w.Leads("a")
		p.End()
		for _, c := range []struct {
			storage time.Duration
			change  func(*producer.Config)
			code    int
			says    string
		}{
			{4 * time.Millisecond, nil, 0, `ok +leadership times +of 100 heartbeats, half took at most 4ms and all but one at most 4ms; the present times tolerate 594ms: ` +
				`HEARTBEAT_INTERVAL=1s FENCE_AFTER=2\.5s TAKEOVER_AFTER=4s STANDBY_POLL=500ms\. The shortest sufficient times: ` +
				`HEARTBEAT_INTERVAL=500ms FENCE_AFTER=1s TAKEOVER_AFTER=1\.5s STANDBY_POLL=250ms`},
			{150 * time.Millisecond, tight, 0, `ok +leadership times +of 20 heartbeats.*the present times tolerate 156ms`},
			{200 * time.Millisecond, tight, 1, `PROBLEM +leadership times +of 15 heartbeats, half took at most 200ms and all but one at most 200ms; ` +
				`FENCE_AFTER=1\.5s and HEARTBEAT_INTERVAL=1s tolerate at most 156ms.*To fix it: set FENCE_AFTER=1\.6s TAKEOVER_AFTER=3\.1s or more, or the shortest sufficient times, HEARTBEAT_INTERVAL=500ms FENCE_AFTER=1\.1s `},
			{700 * time.Millisecond, nil, 1, `PROBLEM +leadership times +of 5 heartbeats.*set FENCE_AFTER=2\.8s TAKEOVER_AFTER=4\.3s or more`},
		} {
			w.OperatorDelay = c.storage
			doctor := operateWith(w, func(to *producer.Config) {
				to.HeartbeatInterval, to.FenceAfter, to.TakeoverAfter, to.StandbyPoll =
					time.Second, 2500*time.Millisecond, 4*time.Second, 500*time.Millisecond
				if c.change != nil {
					c.change(to)
				}
			}, "doctor")
			require.Equal(w, c.code, doctor.Code)
			require.Regexp(w, c.says, doctor.Out)
		}
		require.Equal(t, []string{"shop.events.json", "shop.events.json.began"}, blobNames(w), "the scratch blob is removed")
	})
}

// The settings that the doctor proposes are accepted.
func TestTheDoctorsProposalIsAccepted(t *testing.T) {
	world.InVirtualTime(t, world.Options{}, func(w *world.World) {
		p := w.StartProducer("a", nil)
		w.Leads("a")
		p.End()
		w.OperatorDelay = 200 * time.Millisecond
		doctor := operateWith(w, func(c *producer.Config) {
			c.HeartbeatInterval, c.FenceAfter, c.TakeoverAfter, c.StandbyPoll = time.Second, 1600*time.Millisecond, 3100*time.Millisecond, 500*time.Millisecond
		}, "doctor")
		require.Equal(t, 0, doctor.Code, doctor.Out)
		require.Regexp(t, `ok +leadership times .*The shortest sufficient times: HEARTBEAT_INTERVAL=500ms FENCE_AFTER=1\.1s TAKEOVER_AFTER=1\.6s STANDBY_POLL=250ms`, doctor.Out)
		doctor = operateWith(w, func(c *producer.Config) {
			c.HeartbeatInterval, c.FenceAfter, c.TakeoverAfter, c.StandbyPoll =
				500*time.Millisecond, 1100*time.Millisecond, 1600*time.Millisecond, 250*time.Millisecond
		}, "doctor")
		require.Equal(t, 0, doctor.Code, doctor.Out)
	})
}
