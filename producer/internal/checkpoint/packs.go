package checkpoint

import (
	"context"
	"fmt"
	"time"

	"github.com/sluice-cdc/sluice/producer/store"
)

// packsSuffix is the suffix of the object beside a checkpoint that holds the confirmation that
// every reader knows packs. It is a separate object because an earlier producer, which leads
// meanwhile, would drop an unknown field of the checkpoint.
const packsSuffix = ".json.packs"

// Packs is the confirmation of an operator that every reader of a stream knows packs.
type Packs struct {
	Stream string `json:"stream"`
	On     bool   `json:"on"`
	// By names the operator's host, and At is its wall clock.
	By string    `json:"by"`
	At time.Time `json:"at"`
}

// Packs reads the confirmation; without one it is off. Errors are the store's.
func (c *Checkpoint) Packs(ctx context.Context) (Packs, store.Tag, error) {
	p := Packs{Stream: c.stream}
	tag, err := c.readBeside(ctx, packsSuffix, &p)
	if err != nil {
		return p, "", fmt.Errorf("read whether readers know packs: %w", err)
	}
	return p, tag, nil
}

// WritePacks replaces the confirmation that has this tag, or creates the first one if tag is empty.
// Errors: [ErrChanged], or the store's.
func (c *Checkpoint) WritePacks(ctx context.Context, p Packs, tag store.Tag) error {
	if err := c.writeBeside(ctx, packsSuffix, p, tag); err != nil {
		return fmt.Errorf("write whether readers know packs: %w", err)
	}
	return nil
}
