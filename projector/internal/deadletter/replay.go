package deadletter

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/sluice-cdc/sluice/projector/internal/apply"
)

// Outcome is the result of a replay for one aggregate.
type Outcome struct {
	Aggregate string
	Applied   int // events whose effect this replay committed
	Known     int // events that were applied before
	Skipped   bool
	Repaired  bool // its effects were replaced by what the source holds
	// MissingVersions is the description of a version gap that parked the aggregate, if the missing
	// versions were given up.
	MissingVersions string
	// Stuck is the event that could not be applied, because of which the aggregate stays parked;
	// nil if it is no longer parked.
	Stuck *Stuck
	// Foreign is the number of dead letters of an aggregate that is not parked, and whose effects
	// are not in the read model. They stay.
	Foreign int
	// Unknown is true if neither the read model nor the dead-letter queue has anything of the
	// aggregate.
	Unknown bool
	// settled are the dead letters that are no longer needed.
	settled map[letterKey]bool
}

// Stuck is an event that cannot be applied.
type Stuck struct {
	MessageID, Position, Reason, Description string
}

const (
	// together is how many aggregates are replayed with one scan of the dead-letter queue. Their
	// sessions are held meanwhile.
	together = 64
	// batch is the largest number of events that are applied at once.
	batch = 100
	// maxPasses bounds the passes of one replay: a projector may set more events aside during each.
	maxPasses = 10
	// maxAttempts is how often a failed write is retried.
	maxAttempts = 5
)

// Drop gives up the event that keeps an aggregate parked: the one with this message id alone, or,
// if the id is empty, whichever it is.
type Drop struct{ MessageID string }

// task is the replay of one aggregate.
type task struct {
	o       Outcome
	drop    *Drop
	rebuild Rebuild // nil: it is not repaired but replayed
	// a is the aggregate as it was when its sessions were held, letters are its dead letters since,
	// and err is why it is not replayed.
	a       apply.Aggregate
	letters []Letter
	err     error
}

// Replay applies the events of parked aggregates that wait in the dead-letter queue and ends their
// parkings, or returns the event that cannot be applied. With drop, the event that parked the
// aggregate has no effect; if versions are missing, they are given up. If an aggregate is not
// parked, Replay finds the dead letters that an earlier replay left. done is called for each
// aggregate as soon as its outcome is known; one that fails does not keep the others from it.
//
// The dead letters stay in the queue until [Replayer.Remove]. Errors: [ErrBusy], [ErrMissing],
// [ErrLocked], [ErrAnother], [ErrUnknownEncoding], and others that may be retried.
func (p *Replayer) Replay(ctx context.Context, aggregates []string, drop *Drop, done func(o Outcome, err error)) {
	p.inTurn(ctx, aggregates, drop, nil, done)
}

// inTurn replays aggregates, or repairs them if rebuild is not nil, some of them together.
func (p *Replayer) inTurn(ctx context.Context, aggregates []string, drop *Drop, rebuild Rebuild, done func(o Outcome, err error)) {
	for names := range slices.Chunk(aggregates, together) {
		tasks := make([]*task, len(names))
		for i, name := range names {
			tasks[i] = &task{o: Outcome{Aggregate: name, settled: make(map[letterKey]bool)}, drop: drop, rebuild: rebuild}
		}
		for range maxPasses {
			if tasks = p.replayTogether(ctx, tasks, done); len(tasks) == 0 {
				break
			}
			for _, t := range tasks {
				t.drop = nil // the first pass has done it, or an operator must see the reason before dropping the event
			}
		}
		for _, t := range tasks {
			done(t.o, fmt.Errorf("replay %s: %w, %d times: stop the projectors, run the command again, then start them",
				t.o.Aggregate, apply.ErrMoved, maxPasses))
		}
	}
}

// replayTogether makes one pass over some aggregates, with one scan of the dead-letter queue for
// all of them, and returns those that need another pass.
func (p *Replayer) replayTogether(ctx context.Context, tasks []*task, done func(o Outcome, err error)) (again []*task) {
	var parked, others []*task
	for _, t := range tasks {
		t.a, t.err = p.Applier.Parked(ctx, t.o.Aggregate)
		if t.rebuild != nil && errors.Is(t.err, apply.ErrNotParked) {
			t.err = p.parkForRepair(ctx, t)
		}
		switch {
		case errors.Is(t.err, apply.ErrNotParked) && t.rebuild == nil:
			t.err = nil
			others = append(others, t)
		case t.err != nil:
			done(t.o, t.err)
		default:
			parked = append(parked, t)
		}
	}
	receiver, err := p.Entity.DeadLetters(p.Client)
	if err != nil {
		for _, t := range append(parked, others...) {
			done(t.o, err)
		}
		return nil
	}
	defer p.closeDeadLetters(ctx, receiver)
	p.find(ctx, receiver, others)
	for _, t := range others {
		nowParked := false
		if t.err == nil {
			nowParked, t.err = p.leftovers(ctx, t)
		}
		if t.err == nil && nowParked {
			again = append(again, t)
		} else {
			done(t.o, t.err)
		}
	}
	held := p.hold(ctx, parked)
	defer held.release()
	p.find(ctx, receiver, parked)
	for _, t := range parked {
		switch {
		case t.err != nil:
		case t.rebuild != nil:
			t.err = p.repair(ctx, t)
		default:
			t.err = p.pass(ctx, receiver, held, t)
		}
		if errors.Is(t.err, apply.ErrMoved) || errors.Is(t.err, apply.ErrNotParked) {
			again = append(again, t)
		} else {
			done(t.o, t.err)
		}
	}
	return again
}

// find gives tasks their dead letters.
func (p *Replayer) find(ctx context.Context, from Peeker, tasks []*task) {
	wanted := make(map[string]bool, len(tasks))
	for _, t := range tasks {
		if t.err == nil {
			wanted[t.o.Aggregate] = true
		}
	}
	if len(wanted) == 0 {
		return
	}
	letters, _, err := p.lettersWhere(ctx, from, true, func(aggregate string) bool { return wanted[aggregate] })
	for _, t := range tasks {
		if t.err == nil {
			t.letters, t.err = letters[t.o.Aggregate], err
		}
	}
}

// Remove removes the settled dead letters of outcomes from the queue. It returns how many it
// removed, of how many.
func (p *Replayer) Remove(ctx context.Context, outcomes ...Outcome) (removed, of int, err error) {
	wanted := make(map[letterKey]bool)
	for _, o := range outcomes {
		for key := range o.settled {
			wanted[key] = true
		}
	}
	removed, err = p.remove(ctx, wanted)
	return removed, len(wanted), err
}

// leftovers examines the dead letters of an aggregate that is not parked: those that were applied
// can be removed, the others are counted. If the broker dead-lettered one, leftovers parks the
// aggregate and returns true.
func (p *Replayer) leftovers(ctx context.Context, t *task) (parked bool, err error) {
	t.o.Unknown = len(t.letters) == 0 && t.a.Position == ""
	if parked, err = p.parkStray(ctx, t.a, t.letters); parked || err != nil {
		return parked, err
	}
	p.settle(t.a, t.letters, &t.o)
	return false, nil
}

// settle separates the dead letters that are no longer needed from those whose effects are not in
// the read model.
func (p *Replayer) settle(a apply.Aggregate, letters []Letter, o *Outcome) {
	for _, l := range letters {
		if p.Applier.DeadLetterState(a.Guard, &l.change, l.Reason) == apply.Done {
			o.settled[l.key] = true
			o.Known++
		} else if !o.settled[l.key] {
			o.Foreign++
		}
	}
}
