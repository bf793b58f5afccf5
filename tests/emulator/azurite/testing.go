package azurite

import (
	"errors"
	"os"
	"testing"
)

// ForTest starts Azurite for a test and returns its connection string; it is
// stopped when the test ends. Where Azurite is not installed the test is
// skipped and says why, but with CI=true it fails: there it must run.
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
