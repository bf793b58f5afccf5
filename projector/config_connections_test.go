package projector

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestConnectionsFollowTheSessions(t *testing.T) {
	for _, test := range []struct {
		receiver            string
		set, sessions, want int
	}{
		{"auto", 0, 64, 2},
		{"direct", 0, 1, 1},
		{"direct", 0, 33, 2},
		{"auto", 3, 64, 3},
		{"sdk", 0, 64, 16},
		{"sdk", 0, 1, 1},
		{"sdk", 0, 5, 2},
		{"sdk", 0, 5000, 1250},
		{"sdk", 3, 64, 3},
	} {
		c := Config{SessionReceiver: test.receiver, Connections: test.set, MaxSessions: test.sessions}
		require.Equal(t, test.want, c.connections())
	}
}
