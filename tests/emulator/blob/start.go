package blob

import (
	"testing"

	"github.com/sluice-cdc/sluice/tests/emulator/netpipe"
)

// Start serves an empty storage account on a free port until the test has ended, and returns it
// with its connection string. In virtual time, use [New] and [Server.Transport].
func Start(t testing.TB, opts Options) (s *Server, connectionString string) {
	t.Helper()
	s = New(opts)
	return s, s.ConnectionString(netpipe.ServeTCP(t, s.Run))
}
