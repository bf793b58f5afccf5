package projector

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestConnectionsFollowTheSessions(t *testing.T) {
	for _, test := range []struct{ set, sessions, want int }{
		{0, 64, 16}, {0, 1, 1}, {0, 5, 2}, {0, 5000, 1250}, {3, 64, 3},
	} {
		c := Config{Connections: test.set, MaxSessions: test.sessions}
		require.Equal(t, test.want, c.connections())
	}
}
