package mongo

import (
	"testing"

	"github.com/sluice-cdc/sluice/tests/emulator/netpipe"
)

// Start serves an empty MongoDB on a free port until the test has ended, and returns it with its
// connection string. In virtual time, use [New] and [netpipe.Serve].
func Start(t testing.TB, opts Options) (s *Server, uri string) {
	t.Helper()
	s = New(opts)
	return s, s.URI(netpipe.ServeTCP(t, s.Run))
}
