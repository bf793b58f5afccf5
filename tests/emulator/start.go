package emulator

import (
	"context"
	"testing"
)

// Start serves a stack until the test and its subtests have ended. It fails the test if the servers
// cannot be started.
func Start(t testing.TB, o Options) *Stack {
	t.Helper()
	s, err := New(t.Context(), o)
	if err != nil {
		t.Fatalf("start the embedded servers: %v", err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context())) // clean-ups of the test may still use the servers
	served := make(chan error, 1)
	go func() { served <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Errorf("the embedded servers: %v", err)
		}
	})
	return s
}
