package projector

import (
	"context"
	"fmt"
	"time"

	"github.com/sluice-cdc/sluice/projector/internal/apply"
	"github.com/sluice-cdc/sluice/projector/internal/sessions"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/shared/retry"
	"github.com/sluice-cdc/sluice/shared/telemetry"
)

// maxStuck is how long a session is kept while its batch cannot be finished. The service detaches a link that is idle for ten
// minutes; the locks of its messages then expire, which raises their delivery counts. A session that is released before raises none;
// whoever accepts it next retries.
const maxStuck = 5 * time.Minute

// maxIdleHold bounds how long a session is kept in which nothing is to be done but to wait: a worker waits with it.
const maxIdleHold = 2 * time.Second

// failure is a change that could not be applied, and may be later.
type failure struct {
	change *envelope.Change
	err    error
}

// tries are the attempts to finish one batch while its session is held.
type tries struct {
	s       *service
	session string
	began   time.Time
	backoff retry.Backoff
	left    *left
	// most changes are tried at once, after attempts with more timed out; 0: all.
	most     int
	timeouts int // of attempts, one after the other, in which nothing was decided
	// apart writes each aggregate by itself, after an attempt that failed: what fails is then seen to be one's own.
	apart bool
}

func (s *service) newTries(session string, b *batch, left *left) *tries {
	t := &tries{s: s, session: session, began: time.Now(), left: left}
	for i := range b.changes {
		if name := b.changes[i].Aggregate; s.failing.Due(name) > 0 {
			left.aggregates[name] = true
		}
	}
	return t
}

// next is what to try.
func (t *tries) next() apply.Attempt {
	return apply.Attempt{Most: t.most, Apart: t.apart, Leave: t.left.aggregates}
}

// leavesSome says whether some aggregate is not tried any more.
func (t *tries) leavesSome() bool { return len(t.left.aggregates) > 0 }

// made learns from an attempt how many changes are tried at once: half as many after two that timed out, and more again after one in
// which something was decided.
func (t *tries) made(b *batch, timedOut bool) {
	open, decided := 0, false
	for i, r := range b.results {
		switch r.Kind {
		case apply.Pending:
			if !t.left.aggregates[b.changes[i].Aggregate] {
				open++
			}
		case apply.Applied, apply.Duplicate, apply.Parked:
			decided = true
		case apply.Poison, apply.Gap:
		}
	}
	switch {
	case decided:
		t.most, t.timeouts = 2*t.most, 0
	case timedOut:
		if t.timeouts++; t.timeouts == 2 {
			tried := open
			if t.most > 0 {
				tried = min(open, t.most)
			}
			t.most, t.timeouts = max(tried/2, 1), 0
		}
	}
}

// database handles an attempt that failed as a whole. While the database is away the session is kept and its lock renewed, and it is
// released and accepted again every maxStuck, so that no delivery count rises. Where the session has one aggregate to write, and others
// are written meanwhile, it is that aggregate that fails.
func (t *tries) database(receiving context.Context, rest *batch, err error) error {
	if one, ok := t.only(rest); ok && t.blame(rest, failure{one, err}) {
		return nil
	}
	t.s.readModel.Report(err)
	if time.Since(t.began) >= maxStuck {
		return sessions.ErrRelease
	}
	if t.backoff.Wait(receiving) != nil {
		return fmt.Errorf("stop with a batch in hand: %w", err)
	}
	return nil
}

// only is the first change of the one aggregate that was tried, if it was one.
func (t *tries) only(rest *batch) (first *envelope.Change, ok bool) {
	for i := range rest.changes {
		c := &rest.changes[i]
		switch {
		case t.left.aggregates[c.Aggregate] || rest.results[i].Kind != apply.Pending:
		case first == nil:
			if first = c; t.most == 1 {
				return first, true
			}
		case c.Aggregate != first.Aggregate:
			return nil, false
		}
	}
	return first, first != nil
}

// alone handles changes that failed for reasons of their own: their aggregates are left, or given up.
func (t *tries) alone(rest *batch, failures []failure) {
	for _, f := range failures {
		if !t.blame(rest, f) {
			t.left.aggregates[f.change.Aggregate] = true
		}
	}
}

// blame records the failure of an aggregate. It answers false where it may be the database's that nobody else can use either.
func (t *tries) blame(rest *batch, f failure) bool {
	name := f.change.Aggregate
	v := t.s.failing.Failed(name, f.change.MessageID)
	about := []any{
		telemetry.KeyAggregate, name, telemetry.KeySession, t.session, telemetry.KeyMessageID, f.change.MessageID,
		telemetry.KeyCode, apply.Code(f.err), telemetry.KeyFor, v.For.Round(time.Second).String(), telemetry.KeyError, f.err,
	}
	if v.Over {
		for i := range rest.changes {
			if rest.changes[i].MessageID == f.change.MessageID && rest.results[i].Kind == apply.Pending {
				rest.results[i] = apply.Undecided(v.For, f.err)
				break
			}
		}
		return true
	}
	if v.Alone {
		t.left.aggregates[name] = true
	}
	if v.Tell {
		t.s.log.Warn("an event cannot be applied; it is retried, and its aggregate waits", about...)
	}
	return v.Alone
}

// committed tells of the aggregates whose changes were committed, and whether there is one.
func (s *service) committed(b *batch) (any bool) {
	last := ""
	for i, r := range b.results {
		if name := b.changes[i].Aggregate; r.Kind == apply.Applied && (!any || name != last) {
			s.failing.Committed(name)
			last, any = name, true
		}
	}
	return any
}
