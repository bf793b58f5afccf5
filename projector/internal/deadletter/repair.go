package deadletter

import (
	"context"
	"errors"
	"fmt"

	"github.com/sluice-cdc/sluice/projector/internal/apply"
	"github.com/sluice-cdc/sluice/shared/terminal"
)

// Rebuild replaces the effects of a parked aggregate by what its source holds after the call, if
// the aggregate is still as it was seen.
type Rebuild func(ctx context.Context, seen apply.Aggregate) error

// ErrLater is a dead letter that is later than what the source holds.
var ErrLater = errors.New("the dead-letter queue has an event of the aggregate that is later than the source: SOURCE_MONGODB_URI names another cluster, or an old copy")

// Repair replaces the effects of aggregates by what their source holds, and ends their parkings. An
// aggregate that is not parked is parked first, so that its events wait meanwhile; an interrupted
// repair leaves it parked. done is called for each aggregate as soon as its outcome is known.
//
// The sessions of the aggregate are held, and its dead letters read, before the source is read, so
// the source holds the changes of all of them. What is dead-lettered later moves the record of the
// parking, and the repair begins again. Errors: as of [Replayer.Replay], of rebuild, and
// [ErrLater].
func (p *Replayer) Repair(ctx context.Context, aggregates []string, rebuild Rebuild, done func(o Outcome, err error)) {
	p.inTurn(ctx, aggregates, nil, rebuild, done)
}

// parkForRepair parks an aggregate that is not parked.
func (p *Replayer) parkForRepair(ctx context.Context, t *task) error {
	err := p.Applier.ParkByOperator(ctx, t.o.Aggregate, "it is being repaired; if the command was interrupted, run it again: "+
		terminal.Paste(t.o.Aggregate, p.Program, "repair"))
	if err != nil && !errors.Is(err, apply.ErrParked) {
		return err
	}
	t.a, err = p.Applier.Parked(ctx, t.o.Aggregate)
	return err
}

// repair repairs an aggregate whose sessions are held, and whose dead letters were read since. The
// error is [apply.ErrMoved] if events were set aside meanwhile.
func (p *Replayer) repair(ctx context.Context, t *task) error {
	if err := t.rebuild(ctx, t.a); err != nil {
		return err
	}
	t.o.Repaired = true
	now, err := p.Applier.Parked(ctx, t.a.Name)
	if err != nil {
		return err
	}
	// The guard proves of some letters that they are no longer needed. The others are removed while
	// the aggregate is parked: later they would count as overtaken.
	unproven := make(map[letterKey]bool)
	for _, l := range t.letters {
		switch state := p.Applier.DeadLetterState(now.Guard, &l.change, l.Reason); {
		case l.Position != "" && state == apply.Waiting:
			return fmt.Errorf("%w (message %s)", ErrLater, l.MessageID)
		case state == apply.Done:
			t.o.settled[l.key] = true
		default:
			unproven[l.key] = true
		}
	}
	removed, err := p.remove(ctx, unproven)
	switch {
	case err != nil:
		return err
	case removed < len(unproven):
		return fmt.Errorf("%w: %d of its events; the aggregate is repaired and stays parked: run the command again when the locks have expired, in a minute or so",
			ErrLocked, len(unproven)-removed)
	}
	t.o.Known += len(t.letters)
	return p.Applier.Unpark(ctx, t.a.Name, t.a.Fence())
}
