package pipeline

import (
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/sluice-cdc/sluice/projector/internal/apply"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/shared/retry"
)

const (
	// maxStuck bounds how long a session is kept while its batch cannot be finished. The service
	// detaches a link that is idle for ten minutes; the locks of its messages then expire, which
	// raises their delivery counts. A session that is released before raises none; the replica that
	// accepts it next retries.
	maxStuck = 5 * time.Minute
	// recently is how long a commit proves that the database is available.
	recently = 30 * time.Second
	// remindEvery is how often a failure that lasts is logged.
	remindEvery = 5 * time.Minute
)

// next decides what to do with a batch after an attempt, and before the first. It drops from the
// batch what is decided, and turns changes that have waited too long into poison, which
// the next attempt parks.
func (d *decider) next(now time.Time, b *batch, a attempt) (s step) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.prune(now)
	if b.len() == 0 {
		return step{action: finish}
	}
	switch {
	case a.fetched:
		d.fetches(now, b, a.change, a.err, &s)
		return s
	case !a.made:
		d.begin(now, b)
		return step{action: write}
	case a.away != nil:
		s.action, s.away = writeLater, a.away
		if now.Sub(b.began) >= maxStuck {
			s.action = release
		}
		return s
	}
	committed := d.commits(now, b)
	s.available = committed || a.tried && a.err == nil && len(a.failures) == 0 && len(b.skip) == 0
	b.learn(a)
	if a.err == nil {
		for _, f := range a.failures {
			if !d.fails(now, b, f.Index, f.Err, &s) {
				b.skip[b.changes[f.Index].Aggregate] = true
			}
		}
	}
	b.nextUsedUp()
	progress, blamed := b.dropDecided(), len(a.failures) > 0
	if a.err != nil {
		only, ok := b.onlyTried(a)
		blamed = ok && !errors.Is(a.err, apply.ErrContended) && d.fails(now, b, only, a.err, &s)
	}
	switch {
	case b.len() == 0:
		s.action = finish
	case a.err != nil && !blamed:
		s.unavailable = a.err
		if s.action = writeLater; now.Sub(b.began) >= maxStuck {
			s.action = release
		}
	case blamed || progress || d.expireGaps(now, b, &s):
		s.action = write
	default:
		d.rest(now, b, &s)
	}
	return s
}

// begin starts a round of attempts: it skips the aggregates whose time to be tried again has not
// come.
func (d *decider) begin(now time.Time, b *batch) {
	b.round = round{began: now, skip: make(map[string]bool), limit: b.bounded(0)}
	for i, r := range b.results {
		c := &b.changes[i]
		if r.Kind != apply.Gap {
			continue
		}
		if w := d.waiting[waitKey{versionMissing, c.Stream, c.Aggregate}]; w == nil || !now.Before(w.due) {
			b.results[i] = apply.Result{}
		} else {
			b.gaps++
		}
	}
	if len(d.waiting) == 0 {
		return
	}
	for i := range b.first() {
		c := &b.changes[i]
		fails, body := d.waiting[waitKey{eventFails, "", c.Aggregate}], d.waiting[waitKey{bodyMissing, "", c.Aggregate}]
		if fails != nil && now.Before(fails.due) || body != nil && body.messageID == c.MessageID && now.Before(body.due) {
			b.skip[c.Aggregate] = true
		}
	}
}

// rest decides what to do with changes that all wait: a body is fetched, or everything waits.
func (d *decider) rest(now time.Time, b *batch, s *step) {
	s.action, s.until = fail, now.Add(maxStuck)
	for i := range b.first() {
		c, due := &b.changes[i], now
		fails, body := d.waiting[waitKey{eventFails, "", c.Aggregate}], d.waiting[waitKey{bodyMissing, "", c.Aggregate}]
		switch {
		case fails != nil && now.Before(fails.due):
			due = fails.due
		case b.results[i].Kind == apply.Gap:
			if w := d.waiting[waitKey{versionMissing, c.Stream, c.Aggregate}]; w != nil {
				due = w.due
			}
		case b.skip[c.Aggregate] && body != nil && body.messageID == c.MessageID:
			due = body.due
		case b.skip[c.Aggregate]:
		case c.Claim != nil && b.results[i].Kind == apply.Pending:
			s.action, s.change = fetch, i
			return
		case c.Claim == nil:
			continue
		}
		s.action = deferRest
		if due.Before(s.until) {
			s.until = due
		}
	}
}

// commits records the commits of an attempt, and reports whether there is one. A change for which
// nothing was written proves nothing about the database, of which only the writes may fail.
func (d *decider) commits(now time.Time, b *batch) (committed bool) {
	for i, r := range b.results {
		if r.Kind != apply.Applied {
			continue
		}
		delete(d.waiting, waitKey{eventFails, "", b.changes[i].Aggregate})
		if r.Idle {
			continue
		}
		if now.Sub(d.lastCommit) > d.commitPause {
			d.steady = now
		}
		d.lastCommit, committed = now, true
	}
	return committed
}

// fails records the failure of a change. It reports whether the aggregate is to blame: changes of
// others were committed since it first failed, and not long ago. (A commit of its own ends the
// record of its failure.) The aggregate is then skipped, or, if it has failed for too long, the
// change becomes poison.
func (d *decider) fails(now time.Time, b *batch, i int, err error, s *step) (blamed bool) {
	c := &b.changes[i]
	w := d.wait(now, waitKey{eventFails, "", c.Aggregate}, c.MessageID)
	w.due = now.Add(w.backoff.Next())
	if w.counted.Before(d.steady) {
		w.counted = now // what failed in an outage is not known to fail without one
	}
	othersCommit := d.lastCommit.After(w.first)
	steady := othersCommit && now.Sub(d.lastCommit) <= d.commitPause
	if failed := now.Sub(w.counted); d.undecidedAfter > 0 && steady && failed >= d.undecidedAfter {
		delete(d.waiting, waitKey{eventFails, "", c.Aggregate})
		if b.results[i].Kind == apply.Pending {
			b.results[i] = apply.Undecided(failed, err)
		}
		return true
	}
	if now.Sub(w.logged) >= remindEvery {
		w.logged = now
		s.failing = append(s.failing, failing{*c, err, now.Sub(w.first)})
	}
	blamed = othersCommit && now.Sub(d.lastCommit) <= recently
	if blamed {
		b.skip[c.Aggregate] = true
	}
	return blamed
}

// expireGaps records the events that miss a version, and reports whether one has waited too long:
// it becomes poison.
func (d *decider) expireGaps(now time.Time, b *batch, s *step) (expired bool) {
	waits := false
	for i, r := range b.results {
		if r.Kind != apply.Gap {
			continue
		}
		c := &b.changes[i]
		key := waitKey{versionMissing, c.Stream, c.Aggregate}
		w := d.wait(now, key, c.MessageID)
		remaining := d.versionGapWait - now.Sub(w.first)
		if remaining <= 0 {
			delete(d.waiting, key)
			b.results[i].Kind = apply.Poison
			expired = true
			continue
		}
		if waits = true; !now.Before(w.due) {
			w.due = now.Add(min(w.backoff.Next(), remaining))
		}
	}
	s.versionGap = waits && !expired
	return expired
}

// fetches decides what follows an attempt to fetch the body of a change. A body that is gone or
// corrupt makes its event poison; one that cannot be fetched now is fetched again later.
func (d *decider) fetches(now time.Time, b *batch, i int, err error, s *step) {
	switch refusal, final := errors.AsType[*envelope.Error](err); {
	case final:
		b.results[i] = apply.Undecodable(refusal)
	case err != nil:
		c := &b.changes[i]
		w := d.wait(now, waitKey{bodyMissing, "", c.Aggregate}, c.MessageID)
		w.due = now.Add(w.backoff.Next())
		b.skip[c.Aggregate] = true
		d.rest(now, b, s)
		return
	}
	s.action = write
}

// wait returns the wait of an event, and begins one if another event waited before, or none
// recently.
func (d *decider) wait(now time.Time, key waitKey, messageID string) *wait {
	w := d.waiting[key]
	if w == nil || w.messageID != messageID || d.outdated(now, key, w) {
		w = &wait{messageID: messageID, first: now, counted: now, backoff: retry.Backoff{Initial: 200 * time.Millisecond, Max: 30 * time.Second}}
		if key.reason == versionMissing {
			w.backoff = retry.Backoff{Max: maxGapPause}
		}
		d.waiting[key] = w
	}
	w.seen = now
	return w
}

// outdated reports whether an event has not been seen for so long that it was decided, or another
// process has its session.
func (d *decider) outdated(now time.Time, key waitKey, w *wait) bool {
	if key.reason == versionMissing {
		return now.Sub(w.seen) > d.versionGapWait+maxGapPause
	}
	return now.Sub(w.seen) > max(d.undecidedAfter, failuresKept)
}

// bounded returns how many changes are tried at once; 0: all.
func (b *batch) bounded(limit int) int {
	switch {
	case b.oneByOne:
		return 1
	case b.most > 0 && b.len() > b.most && (limit == 0 || limit > b.most):
		return b.most
	}
	return limit
}

// onlyTried returns the change that an attempt tried first, if it tried one aggregate only.
func (b *batch) onlyTried(a attempt) (index int, ok bool) {
	for i := range b.first() {
		c := &b.changes[i]
		switch {
		case b.skip[c.Aggregate] || c.Claim != nil || b.results[i].Kind != apply.Pending:
		case ok:
			return 0, false
		default:
			if index, ok = i, true; a.limit == 1 {
				return index, true
			}
		}
	}
	return index, ok
}

// learn decides from an attempt how the next one writes: half as many changes at once after two
// attempts that timed out, more again after one in which something was decided, and each aggregate
// in a transaction of its own after a failure, which shows to which aggregate the failure belongs.
func (b *batch) learn(a attempt) {
	if a.err != nil || len(a.failures) > 0 {
		b.perAggregate = true
	}
	pending, decided := 0, false
	for i, r := range b.results {
		switch r.Kind {
		case apply.Pending:
			if !b.skip[b.changes[i].Aggregate] {
				pending++
			}
		case apply.Applied, apply.Duplicate, apply.Parked:
			decided = true
		case apply.Poison, apply.Gap:
		}
	}
	switch {
	case decided:
		b.limit, b.timeouts = b.bounded(2*b.limit), 0
	case a.timedOut:
		if b.timeouts++; b.timeouts == 2 {
			if b.limit > 0 {
				pending = min(pending, b.limit)
			}
			b.limit, b.timeouts = max(pending/2, 1), 0
		}
	}
}

// nextUsedUp makes the next event of a pack that was delivered too often park its aggregate, if the
// one before it turned out to be applied.
func (b *batch) nextUsedUp() {
	for i := range b.events {
		p := b.events[i].pack
		if p == nil || p.usedUp != b.events[i].message {
			continue
		}
		switch b.results[i].Kind {
		case apply.Duplicate, apply.Applied:
			if p.usedUp = nil; len(p.events) > 0 {
				p.usedUp, p.events = p.events[0], p.events[1:]
			}
		case apply.Pending:
			b.results[i] = p.used
		case apply.Poison, apply.Parked, apply.Gap:
		}
	}
}

// dropDecided drops the changes that are decided, and reports whether another attempt can decide
// more of the rest.
func (b *batch) dropDecided() (progress bool) {
	rest, gaps := 0, 0
	applied := make(map[string]bool)
	if slices.ContainsFunc(b.results, func(r apply.Result) bool { return r.Kind == apply.Gap }) {
		for i, r := range b.results {
			applied[b.changes[i].Aggregate] = applied[b.changes[i].Aggregate] || r.Kind == apply.Applied
		}
	}
	for i, r := range b.results {
		if r.Kind == apply.Gap && applied[b.changes[i].Aggregate] {
			r = apply.Result{} // the applied change may be the one that was missing
		}
		if decided(r) {
			continue
		}
		if r.Kind == apply.Gap {
			gaps++
		}
		b.events[rest], b.changes[rest], b.results[rest] = b.events[i], b.changes[i], r
		rest++
	}
	progress = rest < b.len() || gaps != b.gaps
	b.events, b.changes, b.results = slices.Delete(b.events, rest, b.len()), slices.Delete(b.changes, rest, b.len()), slices.Delete(b.results, rest, b.len())
	b.gaps = gaps
	return progress
}

// decided reports whether a result is final: the effect of the change is committed, or will never
// be.
func decided(r apply.Result) bool {
	switch r.Kind {
	case apply.Applied, apply.Duplicate, apply.Parked:
		return true
	case apply.Poison:
		return r.Recorded
	case apply.Pending, apply.Gap:
	}
	return false
}

// first yields the first change of each aggregate. In a batch of undecided changes that is the one
// its aggregate waits for.
func (b *batch) first() iter.Seq[int] {
	return func(yield func(int) bool) {
		seen := make(map[string]bool)
		for i := range b.changes {
			if name := b.changes[i].Aggregate; !seen[name] {
				seen[name] = true
				if !yield(i) {
					return
				}
			}
		}
	}
}
