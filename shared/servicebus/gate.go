package servicebus

import (
	"context"
	"fmt"
)

// gate admits one goroutine at a time. Unlike a mutex, it may be held during a wait for the
// network: the wait for a gate ends with a context.
type gate chan struct{}

func newGate() gate { return make(gate, 1) }

func (g gate) enter(ctx context.Context, what string) error {
	select {
	case g <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for others that %s: %w", what, context.Cause(ctx))
	}
}

func (g gate) leave() { <-g }
