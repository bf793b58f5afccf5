package deadletter

import (
	"context"

	"github.com/sluice-cdc/sluice/projector/internal/apply"
)

// Details is a parked aggregate with its dead letters.
type Details struct {
	apply.Aggregate
	// Waiting are its dead letters that have not been applied, in the order in which a replay
	// applies them.
	Waiting []Letter
	// Overtaken are its dead letters that the broker put there, without a proof that they were
	// applied before later events were.
	Overtaken []Letter
	// Applied is the number of its dead letters that have been applied: an interrupted replay
	// leaves some.
	Applied int
}

// Show returns the details of a parked aggregate. Errors: [apply.ErrNotParked].
func (p *Replayer) Show(ctx context.Context, aggregate string) (Details, error) {
	a, err := p.Applier.Parked(ctx, aggregate)
	s := Details{Aggregate: a}
	if err != nil {
		return s, err
	}
	letters, _, err := p.lookFor(ctx, false, func(other string) bool { return other == aggregate })
	for _, l := range letters[aggregate] {
		switch p.Applier.DeadLetterState(a.Guard, &l.change, l.Reason) {
		case apply.Done:
			s.Applied++
		case apply.Overtaken:
			s.Overtaken = append(s.Overtaken, l)
		case apply.Waiting:
			s.Waiting = append(s.Waiting, l)
		}
	}
	return s, err
}
