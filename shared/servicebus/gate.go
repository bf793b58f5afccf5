package servicebus

import (
	"context"
	"fmt"
)

// gate lets in one goroutine at a time. Unlike a mutex it may be held while waiting for the network, because a context ends the wait
// for it.
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
