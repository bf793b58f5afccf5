package deadletter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-cdc/sluice/projector/internal/apply"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/shared/retry"
)

// apply applies letters in their order, up to the first that cannot be applied.
func (p *Replayer) apply(ctx context.Context, from Peeker, r apply.Replay, letters []Letter, o *Outcome) error {
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
				o.settled[letters[i].key] = true
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
			removed, err := p.remove(ctx, map[letterKey]bool{letters[i].key: true})
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
