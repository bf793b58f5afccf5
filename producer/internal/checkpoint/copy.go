package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sluice-cdc/sluice/producer/store"
)

// maxCopies is how many copies of one epoch are kept.
const maxCopies = 100

// KeepCopy writes a copy of a record beside it, for operators, and returns the copy's name:
// STREAM.json.epoch-N, followed by a number if that name is taken. It replaces nothing. No stream's
// own object can have such a name: those end in .json. Errors: [ErrNotFound] without the blob
// container, or the store's.
func (c *Checkpoint) KeepCopy(ctx context.Context, r Record) (name string, err error) {
	text, err := encode(r)
	if err != nil {
		return "", fmt.Errorf("keep a copy of the checkpoint: %w", err)
	}
	stem := fmt.Sprintf("%s.json.epoch-%d", r.Stream, r.Epoch)
	for n := 1; n <= maxCopies; n++ {
		name = stem
		if n > 1 {
			name = fmt.Sprintf("%s.%d", stem, n)
		}
		if _, err = c.beside.Create(ctx, name, text); !errors.Is(err, ErrChanged) {
			break
		}
	}
	if errors.Is(err, ErrChanged) {
		return "", fmt.Errorf("keep a copy of the checkpoint: there are %d copies of epoch %d already; delete those that are not needed", maxCopies, r.Epoch)
	}
	if err != nil {
		return "", fmt.Errorf("keep a copy of the checkpoint as %s: %w", name, err)
	}
	return name, nil
}

// copyTime is the layout of the time in a copy's name. It sorts.
const copyTime = "2006-01-02T15-04-05Z"

// CopyTo writes a copy of a record into another store, under its time, and returns its name:
// STREAM.json.2006-01-02T15-04-05Z. It replaces nothing: a second copy in the same second is an
// error. Errors: [ErrNotFound] without the blob container, [ErrChanged] if the name is taken, or
// the store's.
func (c *Checkpoint) CopyTo(ctx context.Context, into store.Store, r Record, at time.Time) (name string, err error) {
	name = fmt.Sprintf("%s.json.%s", r.Stream, at.UTC().Format(copyTime))
	text, err := encode(r)
	if err == nil {
		_, err = into.Create(ctx, name, text)
	}
	if err != nil {
		return "", fmt.Errorf("copy the checkpoint to %s: %w", name, err)
	}
	return name, nil
}

// NewestCopy returns the name of the stream's newest copy made by [Checkpoint.CopyTo] in a store.
// Errors: [ErrNotFound] if it does not exist, or the store's.
func (c *Checkpoint) NewestCopy(ctx context.Context, in store.Store) (name string, err error) {
	prefix := c.stream + ".json."
	names, err := in.List(ctx, prefix)
	if err != nil {
		return "", fmt.Errorf("list copies of the checkpoint: %w", err)
	}
	for _, found := range names {
		if _, err := time.Parse(copyTime, strings.TrimPrefix(found, prefix)); err == nil {
			name = max(name, found)
		}
	}
	if name == "" {
		return "", fmt.Errorf("find a copy of the checkpoint: %w", ErrNotFound)
	}
	return name, nil
}

// ReadCopy reads a copy of the stream's record. Errors are those of [Checkpoint.Read].
func (c *Checkpoint) ReadCopy(ctx context.Context, in store.Store, name string) (Record, error) {
	object, err := in.Get(ctx, name)
	var r Record
	if err == nil {
		r, err = decode(object.Data, c.stream)
	}
	if err != nil {
		return Record{}, fmt.Errorf("copy %s: %w", name, err)
	}
	return r, nil
}
