package parked

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/sluice-cdc/sluice/projector/internal/apply"
	"github.com/sluice-cdc/sluice/projector/internal/browse"
	"github.com/sluice-cdc/sluice/projector/internal/viasdk"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/shared/retry"
	"github.com/sluice-cdc/sluice/shared/terminal"
)

// Outcome is the result of a replay for one aggregate.
type Outcome struct {
	Aggregate string
	Applied   int // events whose effect this replay committed
	Known     int // events that were applied before
	Skipped   bool
	// MissingVersions is the description of a version gap that parked the aggregate, if the missing versions were given up.
	MissingVersions string
	// Stuck is the event that could not be applied, because of which the aggregate stays parked; nil if it is no longer parked.
	Stuck *Stuck
	// Foreign is the number of dead letters of an aggregate that is not parked, and whose effects are not in the read model. They stay.
	Foreign int
	// Unknown is true if neither the read model nor the dead-letter queue has anything of the aggregate.
	Unknown bool
	// settled are the sequence numbers of the dead letters that are no longer needed.
	settled map[int64]bool
}

// Stuck is an event that cannot be applied.
type Stuck struct {
	MessageID, Position, Reason, Description string
}

const (
	// batch is the largest number of events that are applied at once.
	batch = 100
	// maxPasses bounds the passes of one replay: a projector may set more events aside during each.
	maxPasses = 10
	// maxAttempts is how often a failed write is retried.
	maxAttempts = 5
)

// Replay applies the events of an aggregate that wait in the dead-letter queue and ends its parking, or returns the event that
// cannot be applied. With skip, the event that parked the aggregate has no effect; if versions are missing, they are given up. If the
// aggregate is not parked, Replay finds the dead letters that an earlier replay left.
//
// The dead letters stay in the queue until [Replayer.Remove]. Errors: [ErrBusy], [ErrMissing], [ErrLocked], and others that may be retried.
func (p *Replayer) Replay(ctx context.Context, aggregate string, skip bool) (Outcome, error) {
	o := Outcome{Aggregate: aggregate, settled: make(map[int64]bool)}
	for range maxPasses {
		a, err := p.Applier.Parked(ctx, aggregate)
		if errors.Is(err, apply.ErrNotParked) {
			parked, err := p.leftovers(ctx, a, &o)
			if err != nil || !parked {
				return o, err
			}
			skip = false // an operator must see the reason before dropping the event
			continue
		}
		if err != nil {
			return o, err
		}
		err = p.pass(ctx, a.Session, aggregate, skip, &o)
		if !errors.Is(err, apply.ErrMoved) && !errors.Is(err, apply.ErrNotParked) {
			return o, err
		}
		skip = false // the first pass has done it
	}
	return o, fmt.Errorf("replay %s: %w, %d times: stop the projectors, run the command again, then start them", aggregate, apply.ErrMoved, maxPasses)
}

// Remove removes the settled dead letters of outcomes from the queue. It returns how many it removed, of how many.
func (p *Replayer) Remove(ctx context.Context, outcomes ...Outcome) (removed, of int, err error) {
	wanted := make(map[int64]bool)
	for _, o := range outcomes {
		for sequence := range o.settled {
			wanted[sequence] = true
		}
	}
	removed, err = p.remove(ctx, wanted)
	return removed, len(wanted), err
}

// pass holds the session and replays the dead letters. The error is [apply.ErrMoved] if events were set aside meanwhile.
func (p *Replayer) pass(ctx context.Context, session, aggregate string, skip bool, o *Outcome) error {
	kept, release, err := p.holdSession(ctx, session)
	if err != nil {
		return err
	}
	defer release()
	// Read the record first, then prove that we hold the session, then read the dead letters: the session's former holder can
	// no longer dead-letter, and a later one must raise the record's count first.
	a, err := p.Applier.Parked(ctx, aggregate)
	if err != nil {
		return err
	}
	if err := p.proveHeld(ctx, kept); err != nil {
		return err
	}
	letters, err := p.deadLetters()
	if err != nil {
		return err
	}
	defer p.closeDeadLetters(ctx, letters)
	waiting, err := p.lettersOf(ctx, letters, aggregate)
	if err != nil {
		return err
	}
	o.Stuck = nil
	if waiting, err = p.stuckOnOvertaken(ctx, a, waiting, skip, o); err != nil || o.Stuck != nil {
		return err
	}
	if a.Reason == apply.ReasonOvertaken { // the event that parked it is already dealt with
		skip = false
	}
	replay := apply.Replay{Aggregate: aggregate, ID: a.ID}
	gone, err := p.missing(ctx, a, waiting, kept)
	switch {
	case err != nil:
		return err
	case gone && !skip:
		return fmt.Errorf("%w (message %s): somebody removed it. To go on without it: %s",
			ErrMissing, a.MessageID, terminal.Paste(aggregate, p.Program, "parked drop", "--yes"))
	case skip && (gone || a.Reason == apply.ReasonVersionGap):
		replay.Unjudged, o.Skipped = true, true
		if a.Reason == apply.ReasonVersionGap {
			o.MissingVersions = a.Description
		}
	case skip:
		replay.Skip, o.Skipped = a.MessageID, true
	}
	if at := slices.IndexFunc(waiting, func(l Letter) bool { return a.Of(&l.change) }); replay.Skip != "" && at >= 0 {
		replay.Skip = waiting[at].MessageID // published again, it has another one
	}
	if err := p.apply(ctx, letters, replay, waiting, o); err != nil {
		return err
	}
	if o.Stuck != nil {
		return nil
	}
	return p.Applier.Unpark(ctx, aggregate, a.Fence())
}

// missing reports whether the event that parked the aggregate is gone: it has not been applied meanwhile, and is neither in the
// dead-letter queue nor in its session, where the projector that parked the aggregate may have left it.
func (p *Replayer) missing(ctx context.Context, a apply.Aggregate, waiting []Letter, kept *viasdk.Session) (bool, error) {
	if a.MessageID == "" || (a.Record.Position != "" && a.Record.Position <= a.Position) {
		return false, nil
	}
	if slices.ContainsFunc(waiting, func(l Letter) bool { return a.Of(&l.change) }) {
		return false, nil
	}
	missing := true
	err := p.scan(ctx, kept, func(m *azservicebus.ReceivedMessage) bool {
		c := envelope.Partial(m)
		missing = !a.Of(&c) || m.SessionID == nil || *m.SessionID != a.Session
		return missing
	})
	return missing, err
}

// apply applies letters in their order, up to the first that cannot be applied.
func (p *Replayer) apply(ctx context.Context, from browse.Peeker, r apply.Replay, letters []Letter, o *Outcome) error {
	o.Stuck = nil
	for len(letters) > 0 {
		n := min(len(letters), batch)
		messages, err := p.contents(ctx, from, letters[:n])
		if err != nil {
			return err
		}
		changes, results := make([]envelope.Change, n), make([]apply.Result, n)
		for i, m := range messages {
			if changes[i], err = envelope.Decode(m); err != nil {
				changes[i], results[i] = envelope.Partial(m), apply.Undecodable(err)
			}
		}
		// An event with its body in a blob is applied alone: the body may be large.
		if claimed := slices.IndexFunc(changes, func(c envelope.Change) bool { return c.Claim != nil }); claimed >= 0 {
			n = max(claimed, 1)
			changes, results = changes[:n], results[:n]
		}
		done, err := p.redeem(ctx, changes, results)
		if err == nil {
			err = p.passOver(ctx, r, letters, changes, results)
		}
		if err != nil {
			done()
			return err
		}
		at, err := p.applyBatch(ctx, r, changes, results, o)
		done()
		for i := range results {
			if results[i].Kind == apply.Applied || results[i].Kind == apply.Duplicate {
				o.settled[letters[i].sequence] = true
			}
		}
		if err != nil {
			return err
		}
		if at >= 0 {
			o.Stuck = &Stuck{changes[at].MessageID, changes[at].Position, results[at].Reason, results[at].Description}
			return p.Applier.Amend(ctx, r.Aggregate, r.ID, changes[at], results[at])
		}
		letters = letters[n:]
	}
	return nil
}

// redeemTimeout bounds the wait for a body in a blob.
const redeemTimeout = time.Minute

// redeem gets the body for a batch of one event whose body is in a blob. done must be called, even after an error.
func (p *Replayer) redeem(ctx context.Context, changes []envelope.Change, results []apply.Result) (done func(), err error) {
	if changes[0].Claim == nil || results[0].Kind != apply.Pending {
		return func() {}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, redeemTimeout)
	defer cancel()
	done, err = p.Redeem(ctx, &changes[0])
	if refusal, ok := errors.AsType[*envelope.Error](err); ok {
		results[0] = apply.Undecodable(refusal)
		return done, nil
	}
	if err != nil {
		return done, fmt.Errorf("get the body of message %s, in %s: %w (is Blob storage configured as it is for run?)",
			changes[0].MessageID, redeemTimeout, err)
	}
	return done, nil
}

// passOver skips the event that is to be skipped even if its message cannot be read. If the event has no position, the guard cannot
// record that it was skipped, so its message is removed before any later event is applied.
func (p *Replayer) passOver(ctx context.Context, r apply.Replay, letters []Letter, changes []envelope.Change, results []apply.Result) error {
	for i := range results {
		if r.Skip == "" || changes[i].MessageID != r.Skip || results[i].Kind != apply.Poison {
			continue
		}
		results[i] = apply.Result{}
		if changes[i].Position == "" {
			removed, err := p.remove(ctx, map[int64]bool{letters[i].sequence: true})
			switch {
			case err != nil:
				return err
			case removed == 0:
				return locked(letters[i])
			}
			results[i] = apply.Result{Kind: apply.Duplicate}
		}
	}
	return nil
}

func locked(l Letter) error {
	return fmt.Errorf("%w: message %s, which is to be dropped; a command that was interrupted may have left it locked: "+
		"run this one again when the lock has expired, in a minute or so", ErrLocked, l.MessageID)
}

// applyBatch applies changes, and returns the index of the first that cannot be applied, or -1.
func (p *Replayer) applyBatch(ctx context.Context, r apply.Replay, changes []envelope.Change, results []apply.Result, o *Outcome) (int, error) {
	var backoff retry.Backoff
	for {
		attempt, cancel := context.WithTimeout(ctx, p.ApplyTimeout)
		before := pending(results)
		err := p.Applier.Replay(attempt, r, changes, results)
		cancel()
		left := pending(results)
		switch {
		case errors.Is(err, apply.ErrNotParked):
			return -1, err
		case err != nil && (ctx.Err() != nil || backoff.Attempts() == maxAttempts):
			return -1, fmt.Errorf("%w; what was applied stays applied: run the command again", err)
		case err != nil:
			_ = backoff.Wait(ctx) // the next attempt fails if ctx has ended
			continue
		}
		undecided := slices.IndexFunc(results, func(r apply.Result) bool {
			return r.Kind != apply.Applied && r.Kind != apply.Duplicate
		})
		switch {
		case undecided < 0:
			count(o, r, changes, results)
			return -1, nil
		case results[undecided].Kind != apply.Pending:
			count(o, r, changes, results[:undecided])
			return undecided, nil
		case left == before:
			return -1, fmt.Errorf("replay %s: %d events were neither applied nor refused", r.Aggregate, left)
		}
	}
}

func pending(results []apply.Result) (n int) {
	for _, r := range results {
		if r.Kind == apply.Pending {
			n++
		}
	}
	return n
}

func count(o *Outcome, r apply.Replay, changes []envelope.Change, results []apply.Result) {
	for i, result := range results {
		switch {
		case r.Skip != "" && changes[i].MessageID == r.Skip:
		case result.Kind == apply.Applied:
			o.Applied++
		default:
			o.Known++
		}
	}
}

// leftovers examines the dead letters of an aggregate that is not parked: those that were applied can be removed, the others are counted.
// If the broker dead-lettered one by itself, leftovers parks the aggregate and returns true.
func (p *Replayer) leftovers(ctx context.Context, a apply.Aggregate, o *Outcome) (parked bool, err error) {
	receiver, err := p.deadLetters()
	if err != nil {
		return false, err
	}
	defer p.closeDeadLetters(ctx, receiver)
	letters, err := p.lettersOf(ctx, receiver, a.Name)
	if err != nil {
		return false, err
	}
	o.Unknown = len(letters) == 0 && a.Position == ""
	if parked, err = p.parkStray(ctx, a, letters); parked || err != nil {
		return parked, err
	}
	p.settle(a, letters, o)
	return false, nil
}

// settle tells the dead letters that are no longer needed from those whose effects are not in the read model.
func (p *Replayer) settle(a apply.Aggregate, letters []Letter, o *Outcome) {
	for _, l := range letters {
		if p.Applier.Standing(a.Guard, &l.change, l.Reason) == apply.Done {
			o.settled[l.sequence] = true
			o.Known++
		} else if !o.settled[l.sequence] {
			o.Foreign++
		}
	}
}
