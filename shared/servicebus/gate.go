package servicebus

import (
	"context"
	"fmt"
)

// gate lets one in at a time. Unlike a mutex it can be held while the network is waited for: a context ends the wait for it.
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
