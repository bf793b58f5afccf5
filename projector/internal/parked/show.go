package parked

import (
	"context"

	"github.com/sluice-cdc/sluice/projector/internal/apply"
)

// Details is a parked aggregate and what of it waits in the dead-letter queue.
type Details struct {
	apply.Aggregate
	// Waiting are its dead letters that have not been applied, in the order they will be.
	Waiting []Letter
	// Applied counts its dead letters that have been: an interrupted replay leaves some.
	Applied int
}

// Show looks at one parked aggregate. Errors: [apply.ErrNotParked].
func (p *Replayer) Show(ctx context.Context, aggregate string) (Details, error) {
	a, err := p.Applier.Parked(ctx, aggregate)
	s := Details{Aggregate: a}
	if err != nil {
		return s, err
	}
	receiver, err := p.deadLetters()
	if err != nil {
		return s, err
	}
	defer p.closeDeadLetters(ctx, receiver)
	letters, err := p.lettersOf(ctx, receiver, aggregate)
	for _, l := range letters {
		if l.Position != "" && l.Position <= a.Position {
			s.Applied++
		} else {
			s.Waiting = append(s.Waiting, l)
		}
	}
	return s, err
}
