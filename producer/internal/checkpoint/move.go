package checkpoint

import (
	"context"
	"errors"
	"fmt"
)

// ErrMoved reports a record that stays behind in a store that the stream has left. It holds the
// whole record as it was, for a repeated move; no replica may lead with it. Errors that wrap it
// also wrap [ErrUnreadable], as such a record is for releases that do not know of moves.
var ErrMoved = errors.New("the checkpoint was moved to another store")

// unmoved returns an error for a record that stays behind in a store that the stream has left.
func (r Record) unmoved() error {
	if r.MovedTo == "" {
		return nil
	}
	return fmt.Errorf("%w: %w, at epoch %d: set CHECKPOINT_STORE=%s with that store's settings, and START_FROM=checkpoint",
		ErrUnreadable, ErrMoved, r.Epoch, r.MovedTo)
}

// ReadMoved is like [Checkpoint.Read], and also returns a record that stays behind after a move.
func (c *Checkpoint) ReadMoved(ctx context.Context) (Snapshot, error) { return c.readBy(ctx, parse) }

// CopyBeside copies what operators have confirmed and requested beside the record into the
// checkpoint of the same stream in another store, and replaces what is there. Errors are those of
// the stores.
func (c *Checkpoint) CopyBeside(ctx context.Context, into *Checkpoint) error {
	for _, suffix := range []string{packsSuffix, requestSuffix} {
		name := c.stream + suffix
		from, err := c.beside.Get(ctx, name)
		if errors.Is(err, ErrNotFound) {
			continue
		}
		if err == nil {
			_, err = into.beside.Create(ctx, name, from.Data)
		}
		if errors.Is(err, ErrChanged) {
			present, reading := into.beside.Get(ctx, name)
			if err = reading; err == nil {
				_, err = into.beside.Put(ctx, name, from.Data, present.Tag)
			}
		}
		if err != nil {
			return fmt.Errorf("copy %s: %w", name, err)
		}
	}
	return nil
}
