package netns

import (
	"context"
	"os"
	"testing"
)

// Require skips a test where namespaces cannot be made, and says why; with CI=true it fails: there it must run.
func Require(tb testing.TB) {
	tb.Helper()
	err := Probe(tb.Context())
	if err != nil && os.Getenv("CI") != "true" {
		tb.Skipf("without a network of its own: %v", err)
	}
	if err != nil {
		tb.Fatalf("a network of its own must be there: %v", err)
	}
}

// ForTest makes a namespace that is removed when the test ends.
func ForTest(ctx context.Context, tb testing.TB, name string) *Namespace {
	tb.Helper()
	n, err := New(ctx, name)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := n.Close(ctx); err != nil {
			tb.Error(err)
		}
	})
	return n
}
