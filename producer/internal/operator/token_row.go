package operator

import (
	"context"
	"fmt"

	"github.com/sluice-cdc/sluice/producer/internal/checkpoint"
)

// passRow moves the checkpoint to a row of the snapshot's chunk, so that the rows up to it are not
// published. Errors: [ErrRefused], or the services'.
func (s *Stream) passRow(ctx context.Context, position string, change Change) error {
	present, err := s.read(ctx)
	if err != nil {
		return err
	}
	if _, err := passedRow(present.Record.Progress, position, change.Forward); err != nil {
		return err
	}
	t, err := s.rewrite(ctx, change.Force, func(r *checkpoint.Record) (err error) {
		r.Progress, err = passedRow(r.Progress, position, change.Forward)
		return err
	})
	if err != nil {
		return err
	}
	return s.print(t.done(), "stream %q: the checkpoint is at the row %s of the snapshot, epoch %d; the old record is kept as blob %s\n"+
		"The rows up to it that were not published never will be.", s.Name, position, t.from.Record.Epoch+1, t.kept)
}

// passedRow returns progress without the rows up to a position. Errors: [ErrRefused].
func passedRow(p checkpoint.Progress, position string, forward bool) (checkpoint.Progress, error) {
	passed, ok := p.Backfill.Passed(position)
	switch {
	case !ok:
		return p, fmt.Errorf("%w: %s is not the position of a row that the snapshot publishes now", ErrRefused, position)
	case position < p.Position:
		return p, fmt.Errorf("%w: the rows up to %s are published: a snapshot does not go back", ErrRefused, p.Position)
	case position > p.Position && !forward:
		return p, fmt.Errorf("%w: the rows between %s and %s would never be published. If that is what you want: `producer token set --forward POSITION`",
			ErrRefused, p.Position, position)
	}
	p.Position, p.Backfill = position, passed
	return p, nil
}
