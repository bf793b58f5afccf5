package producer_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/producer"
	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// leaderStatus is a leader's status record in its log.
type leaderStatus struct {
	Role     string `json:"role"`
	LagMS    int64  `json:"lag_ms"`
	BehindMS int64  `json:"behind_ms"`
}

func statuses(t *testing.T, log string) (all []leaderStatus) {
	t.Helper()
	for line := range strings.Lines(log) {
		var record struct {
			Msg    string
			Status leaderStatus
		}
		require.NoError(t, json.Unmarshal([]byte(line), &record))
		if record.Msg == "status" && record.Status.Role == "leader" {
			all = append(all, record.Status)
		}
	}
	return all
}

// An idle stream has no lag, although MongoDB gives a new position only every ten seconds; a stream
// with waiting events has theirs.
func TestAnIdleStreamHasNoLag(t *testing.T) {
	world.InVirtualTime(t, world.Options{ReplicaSet: "high-water marks of a mongos do not stand still"}, func(w *world.World) {
		a := w.StartProducer("a", func(c *producer.Config, _ *producer.Options) { c.StatusInterval = 500 * time.Millisecond })
		w.Leads("a")
		w.InsertMany(3, 1)
		w.Published()
		w.Pass(2 * time.Second)
		before := len(statuses(t, a.Log.Text()))
		w.Pass(20 * time.Second)
		idle := statuses(t, a.Log.Text())[before:]
		require.Greater(t, len(idle), 30)
		oldest := int64(0)
		for _, s := range idle {
			require.GreaterOrEqual(t, s.LagMS, int64(0))
			require.LessOrEqual(t, s.LagMS, int64(1500), "it asks every second")
			oldest = max(oldest, s.BehindMS)
		}
		require.Greater(t, oldest, int64(5000), "its position stands still for longer")

		end := w.Bus.Inject(servicebus.Faults{Send: servicebus.Fault{Delay: time.Minute}})
		w.InsertMany(1, 1)
		w.Pass(8 * time.Second)
		all := statuses(t, a.Log.Text())
		require.Greater(t, all[len(all)-1].LagMS, int64(6000), "an event waits")
		end()
		w.Eventually("there is no lag again", func() bool {
			all := statuses(t, a.Log.Text())
			return all[len(all)-1].LagMS < 1500
		})
		a.End()
	})
}
