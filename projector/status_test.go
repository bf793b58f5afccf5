package projector

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// While the database is unavailable, the number of parked aggregates is not known to be zero.
func TestUnknownCountsAreNotZero(t *testing.T) {
	s := newStatus("instance", "timeline")
	require.EqualValues(t, -1, s.Status().LagMS)
	require.EqualValues(t, -1, s.Status().Parked)
}

// A replica that meets messages that it cannot read is not ready, whatever else works.
func TestNotReadyWhileMessagesCannotBeRead(t *testing.T) {
	s := newStatus("instance", "timeline")
	s.mongoReady.Store(true)
	s.busReady.Store(true)
	require.NoError(t, s.ready())
	unread := errors.New("a newer encoding")
	s.readable, s.programReady = func() error { return unread }, func() error { return nil }
	require.ErrorIs(t, s.ready(), unread)
}
