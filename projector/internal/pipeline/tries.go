package pipeline

import (
	"errors"
	"time"

	"github.com/sluice-cdc/sluice/projector/internal/apply"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/shared/retry"
	"github.com/sluice-cdc/sluice/shared/telemetry"
)

// failure is a change that could not be applied, and may be later.
type failure struct {
	change *envelope.Change
	err    error
}

// tries are the attempts to finish one batch while its session is held.
type tries struct {
	p        *Pipeline
	session  string
	began    time.Time
	backoff  retry.Backoff
	deferred *deferred
	leave    map[string]bool // aggregates that are not tried now
	// most changes are tried at once, after attempts with more timed out; 0: all.
	most     int
	timeouts int // of attempts, one after the other, in which nothing was decided
	// apart writes each aggregate by itself, after an attempt that failed: what fails is then seen to be one's own.
	apart bool
}

func (p *Pipeline) newTries(session string, b *batch, d *deferred) *tries {
	t := &tries{p: p, session: session, began: time.Now(), deferred: d, leave: make(map[string]bool)}
	if p.failing.Any() {
		for i := range b.first() {
			if name := b.changes[i].Aggregate; p.failing.Due(name) > 0 {
				t.leave[name] = true
			}
		}
	}
	return t
}

// next is what to try.
func (t *tries) next() apply.Attempt {
	return apply.Attempt{Most: t.most, Apart: t.apart, Leave: t.leave}
}

// some reports whether the next attempt tries any change of the batch.
func (t *tries) some(b *batch) bool {
	for i := range b.first() {
		if b.results[i].Kind == apply.Pending && b.changes[i].Claim == nil && !t.leave[b.changes[i].Aggregate] {
			return true
		}
	}
	return false
}

// outcome records what an attempt led to: whose failure it is, and what waits for a version. rest is what the attempt left undecided.
func (t *tries) outcome(rest *batch, progress bool, failures []failure, away error) outcome {
	o := outcome{undecided: rest.len(), progress: progress, blamed: len(failures) > 0, stuck: time.Since(t.began)}
	switch {
	case away != nil:
		one, ok := t.only(rest)
		o.blamed = ok && t.blame(rest, failure{one, away})
		if o.away = !o.blamed; o.away {
			t.p.readModel.Report(away)
		}
	case o.blamed:
		t.alone(rest, failures)
	case !progress:
		o.expired = t.awaitVersions(rest)
		_, o.body = t.deferred.fetchable(rest, t.leave)
		for i := range rest.first() {
			c := &rest.changes[i]
			o.waiting = o.waiting || t.leave[c.Aggregate] || c.Claim != nil || rest.results[i].Kind == apply.Gap
		}
	}
	return o
}

// made learns from an attempt how many changes are tried at once: half as many after two that timed out, and more again after one in
// which something was decided.
func (t *tries) made(b *batch, timedOut bool) {
	open, decided := 0, false
	for i, r := range b.results {
		switch r.Kind {
		case apply.Pending:
			if !t.leave[b.changes[i].Aggregate] {
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

// only returns the first change of the one aggregate that was tried, if it was one.
func (t *tries) only(rest *batch) (first *envelope.Change, ok bool) {
	for i := range rest.first() {
		c := &rest.changes[i]
		switch {
		case t.leave[c.Aggregate] || c.Claim != nil || rest.results[i].Kind != apply.Pending:
		case first != nil:
			return nil, false
		default:
			if first = c; t.most == 1 {
				return first, true
			}
		}
	}
	return first, first != nil
}

// alone handles changes that failed for reasons of their own: their aggregates are left, or given up.
func (t *tries) alone(rest *batch, failures []failure) {
	for _, f := range failures {
		if !t.blame(rest, f) {
			t.leave[f.change.Aggregate] = true
		}
	}
}

// blame records the failure of an aggregate. It answers false where it may be the database's that nobody else can use either.
func (t *tries) blame(rest *batch, f failure) bool {
	name := f.change.Aggregate
	v := t.p.failing.Failed(name, f.change.MessageID)
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
		t.leave[name] = true
	}
	if v.Tell {
		t.p.opts.Logger.Warn("an event cannot be applied; it is retried, and its aggregate waits", about...)
	}
	return v.Alone
}

// committed tells of the aggregates whose changes were committed, and whether there is one.
func (p *Pipeline) committed(b *batch) (any bool) {
	last := ""
	for i, r := range b.results {
		if name := b.changes[i].Aggregate; r.Kind == apply.Applied && (!any || name != last) {
			p.failing.Committed(name)
			last, any = name, true
		}
	}
	return any
}

var errNoProgress = errors.New("a batch was applied, and no message of it was decided")

// awaitVersions makes poison of changes that have waited for a missing version for VERSION_GAP_WAIT, and reports whether there is one. The
// others are tried again after a pause, or as soon as a version comes.
func (t *tries) awaitVersions(rest *batch) (expired bool) {
	pause, waits := time.Duration(0), false
	for i, r := range rest.results {
		if r.Kind != apply.Gap {
			continue
		}
		wait, over := t.p.gaps.Seen(rest.changes[i].Stream+"\n"+rest.changes[i].Aggregate, rest.changes[i].MessageID)
		if over {
			rest.results[i].Kind = apply.Poison
			expired = true
		} else if !waits || wait < pause {
			pause, waits = wait, true
		}
	}
	if waits && !expired {
		t.p.metrics.gaps.Inc()
		t.deferred.versions = time.Now().Add(pause)
	}
	return expired
}
