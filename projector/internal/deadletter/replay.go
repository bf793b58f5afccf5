package deadletter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/sluice-cdc/sluice/projector/internal/apply"
	"github.com/sluice-cdc/sluice/projector/internal/sessions"
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
	// settled are the sequence numbers of the dead letters that are no longer needed.
	settled map[int64]bool
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
// [ErrLocked], [ErrAnother], and others that may be retried.
func (p *Replayer) Replay(ctx context.Context, aggregates []string, drop *Drop, done func(o Outcome, err error)) {
	p.inTurn(ctx, aggregates, func(t *task) { t.drop = drop }, done)
}

// inTurn replays or repairs aggregates, some of them together.
func (p *Replayer) inTurn(ctx context.Context, aggregates []string, set func(*task), done func(o Outcome, err error)) {
	for names := range slices.Chunk(aggregates, together) {
		tasks := make([]*task, len(names))
		for i, name := range names {
			tasks[i] = &task{o: Outcome{Aggregate: name, settled: make(map[int64]bool)}}
			set(tasks[i])
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
	receiver, err := p.deadLetters()
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
	letters, _, err := p.lettersWhere(ctx, from, func(aggregate string) bool { return wanted[aggregate] })
	for _, t := range tasks {
		if t.err == nil {
			t.letters, t.err = letters[t.o.Aggregate], err
		}
	}
}

// Remove removes the settled dead letters of outcomes from the queue. It returns how many it
// removed, of how many.
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

// pass replays the dead letters of an aggregate whose sessions are held. The error is
// [apply.ErrMoved] if events were set aside meanwhile.
func (p *Replayer) pass(ctx context.Context, letters Peeker, held *held, t *task) (err error) {
	aggregate, a, waiting, skip, o := t.a.Name, t.a, t.letters, t.drop != nil, &t.o
	o.Stuck = nil
	if a.Reason == apply.ReasonBuild {
		return fmt.Errorf("%w: %s. Correct the projection, then: %s", ErrNotBuilt, a.Description, terminal.Paste(aggregate, p.Program, "repair"))
	}
	if now := InTheWay(a, waiting); skip && t.drop.MessageID != "" && t.drop.MessageID != now {
		return fmt.Errorf("%w: message %s, so nothing was dropped; check again: %s", ErrAnother, cmp.Or(now, "unknown"),
			terminal.Paste(aggregate, p.Program, "parked show"))
	}
	if waiting, err = p.stuckOnOvertaken(ctx, a, waiting, skip, o); err != nil || o.Stuck != nil {
		return err
	}
	if a.Reason == apply.ReasonOvertaken { // the event that parked it is already dealt with
		skip = false
	}
	if a.Reason == apply.ReasonOperator && skip { // see InTheWay
		if len(waiting) == 0 {
			return fmt.Errorf("%w: to end its parking: %s", ErrNothingWaits, terminal.Paste(aggregate, p.Program, "parked replay"))
		}
		a.MessageID, a.Stream, a.Record.Position = waiting[0].MessageID, waiting[0].change.Stream, waiting[0].Position
	}
	replay := apply.Replay{Aggregate: aggregate, ID: a.ID}
	gone, err := p.missing(ctx, a, waiting, held.of(a))
	switch {
	case err != nil:
		return err
	case gone && !skip:
		return fmt.Errorf("%w (message %s): it was removed. To continue without it: %s",
			ErrMissing, a.MessageID, p.DropCommand(aggregate, a.MessageID))
	case skip && gone: // what follows it may lack the one version that it had
		replay.Past, o.Skipped = apply.Past{Before: versionedBehind(a, waiting), Most: 1}, true
	case skip:
		o.Skipped = true
		messageID := a.MessageID
		if at := slices.IndexFunc(waiting, func(l Letter) bool { return a.Of(&l.change) }); at >= 0 {
			messageID = waiting[at].MessageID // published again, it has another one
		}
		if a.Reason == apply.ReasonVersionGap {
			replay.Past, o.MissingVersions = apply.Past{Before: messageID}, a.Description
		} else {
			replay.Skip = messageID
		}
	}
	if err := p.apply(ctx, letters, replay, waiting, o); err != nil {
		return err
	}
	if o.Stuck != nil {
		return nil
	}
	return p.Applier.Unpark(ctx, aggregate, a.Fence())
}

// InTheWay returns the message id of the event that a drop gives up: of the one that parked the
// aggregate, or, if a person parked it because of no event, of the first one that waits.
func InTheWay(a apply.Aggregate, waiting []Letter) string {
	if a.Reason == apply.ReasonOperator && len(waiting) > 0 {
		return waiting[0].MessageID
	}
	return a.MessageID
}

// DropCommand returns the command that gives up an event, for an operator to paste.
func (p *Replayer) DropCommand(aggregate, messageID string) string {
	words := []string{p.Program, "parked drop", "--yes"}
	if messageID != "" {
		words = append(words, "--message", terminal.Quote(messageID))
	}
	return terminal.Paste(aggregate, words...)
}

// versionedBehind returns the message id of the first letter with a version behind the event that
// parked the aggregate; empty without one.
func versionedBehind(a apply.Aggregate, waiting []Letter) string {
	for _, l := range waiting {
		if l.Version > 0 && l.change.Operation == envelope.Insert &&
			(a.Stream == "" || l.change.Stream == a.Stream) && l.Position > a.Record.Position {
			return l.MessageID
		}
	}
	return ""
}

// missing reports whether the event that parked the aggregate is gone: it has not been applied
// meanwhile, and is neither in the dead-letter queue nor in a session of the aggregate, where the
// projector that parked it may have left it.
func (p *Replayer) missing(ctx context.Context, a apply.Aggregate, waiting []Letter, kept map[string]*sessions.SDKSession) (bool, error) {
	if a.MessageID == "" || (a.Record.Position != "" && a.Record.Position <= a.Position) {
		return false, nil
	}
	if slices.ContainsFunc(waiting, func(l Letter) bool { return a.Of(&l.change) }) {
		return false, nil
	}
	missing := true
	for name, session := range kept {
		err := p.scan(ctx, session, func(m *azservicebus.ReceivedMessage) bool {
			c := envelope.Partial(m)
			missing = !a.Of(&c) || m.SessionID == nil || *m.SessionID != name
			return missing
		})
		if err != nil || !missing {
			return missing, err
		}
	}
	return true, nil
}

// apply applies letters in their order, up to the first that cannot be applied.
func (p *Replayer) apply(ctx context.Context, from Peeker, r apply.Replay, letters []Letter, o *Outcome) error {
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

// redeem gets the body for a batch of one event whose body is in a blob. done must be called, even
// after an error.
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

// passOver skips the event that is to be skipped even if its message cannot be read. If the event
// has no position, the guard cannot record that it was skipped, so its message is removed before
// any later event is applied.
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
			o.settled[l.sequence] = true
			o.Known++
		} else if !o.settled[l.sequence] {
			o.Foreign++
		}
	}
}
