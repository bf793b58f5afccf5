package netns

import (
	"context"
	"os"
	"testing"
)

// Require skips a test if namespaces cannot be created, and logs why; with CI=true the test fails
// instead.
func Require(tb testing.TB) {
	tb.Helper()
	err := Probe(tb.Context())
	if err != nil && os.Getenv("CI") != "true" {
		tb.Skipf("network namespaces are missing: %v", err)
	}
	if err != nil {
		tb.Fatalf("CI needs network namespaces: %v", err)
	}
}

// ForTest creates a namespace that is removed when the test ends.
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
