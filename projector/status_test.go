package projector

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// While the database is unavailable, the number of parked aggregates is not known to be zero.
func TestUnknownCountsAreNotZero(t *testing.T) {
	s := newStatus("instance", "timeline")
	require.EqualValues(t, -1, s.Status().LagMS)
	require.EqualValues(t, -1, s.Status().Parked)
}
