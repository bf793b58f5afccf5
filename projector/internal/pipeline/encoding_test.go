package pipeline

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A replica that meets an encoding that it does not know is not ready, until it has met none for a
// while; it logs that from time to time only.
func TestAnUnknownEncodingIsNotReady(t *testing.T) {
	var u unreadable
	start := time.Now()
	require.NoError(t, u.err(start))
	require.True(t, u.meet(start, "application/vnd.sluice.newer"))
	require.ErrorContains(t, u.err(start.Add(encodingKnown-1)), "application/vnd.sluice.newer")
	require.NoError(t, u.err(start.Add(encodingKnown)))
	require.False(t, u.meet(start.Add(remindEvery-1), "x"))
	require.True(t, u.meet(start.Add(remindEvery), "x"))
}
