package leader

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAFenceToleratesSlowStorage(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct{ heartbeat, fence, bears time.Duration }{
		{1000 * ms, 2500 * ms, 593750 * time.Microsecond}, // the defaults
		{1000 * ms, 1500 * ms, 156250 * time.Microsecond},
		{500 * ms, 1000 * ms, 187500 * time.Microsecond},
		{1000 * ms, 1100 * ms, -18750 * time.Microsecond},
	} {
		require.Equal(t, c.bears, Times{Heartbeat: c.heartbeat, Fence: c.fence}.MaxStorageLatency())
	}
	for _, heartbeat := range []time.Duration{50 * ms, 500 * ms, time.Second, 5 * time.Second} {
		for slow := time.Duration(0); slow < 3*time.Second; slow += 7 * ms {
			fence := FenceFor(heartbeat, slow)
			require.GreaterOrEqual(t, Times{Heartbeat: heartbeat, Fence: fence}.MaxStorageLatency(), slow)
			require.GreaterOrEqual(t, fence, heartbeat+500*ms, "what the settings ask for")
			if shorter := fence - 100*ms; shorter >= heartbeat+500*ms {
				require.Less(t, Times{Heartbeat: heartbeat, Fence: shorter}.MaxStorageLatency(), slow)
			}
		}
	}
	require.Equal(t, Times{500 * ms, 1000 * ms, 1500 * ms, 250 * ms}, TimesFor(12*ms))
	require.Equal(t, Times{500 * ms, 1700 * ms, 2200 * ms, 250 * ms}, TimesFor(480*ms))
}
