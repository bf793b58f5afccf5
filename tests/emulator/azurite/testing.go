package azurite

import (
	"errors"
	"os"
	"testing"
)

// ForTest starts Azurite for a test, stops it when the test ends, and returns its connection
// string. If Azurite is not installed, the test is skipped with a message; with CI=true it fails.
func ForTest(tb testing.TB) (connectionString string) {
	tb.Helper()
	p, err := Start(tb.Context(), Options{})
	if errors.Is(err, ErrNotInstalled) && os.Getenv("CI") != "true" {
		tb.Skipf("without Azurite: %v", err)
	}
	if err != nil {
		tb.Fatalf("Azurite must run: %v", err)
	}
	tb.Cleanup(func() {
		if err := p.Stop(); err != nil {
			tb.Errorf("stop azurite: %v", err)
		}
	})
	return p.ConnectionString()
}
