package projector

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// While the database is away nobody can say that nothing is parked.
func TestWhatIsNotKnownYetIsNotZero(t *testing.T) {
	s := newStatus("instance", "timeline")
	require.EqualValues(t, -1, s.Status().LagMS)
	require.EqualValues(t, -1, s.Status().Parked)
}
