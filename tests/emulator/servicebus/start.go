package servicebus

import (
	"testing"

	"github.com/sluice-cdc/sluice/tests/emulator/netpipe"
)

// Start serves a namespace on a free port until the test has ended, and returns it with its
// connection string. The test fails when the configuration is wrong. In virtual time, use [New] and
// [netpipe.Serve].
func Start(t testing.TB, cfg Config, opts Options) (s *Server, connectionString string) {
	t.Helper()
	s, err := New(cfg, opts)
	if err != nil {
		t.Fatalf("start Service Bus: %v", err)
	}
	return s, ConnectionString(netpipe.ServeTCP(t, s.Run))
}
