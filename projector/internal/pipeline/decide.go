package pipeline

import (
	"errors"
	"maps"
	"sync"
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
	// failuresKept is how long the failure of an event is remembered while other projectors have
	// its session: with every exchange of the session, each of them has it for maxStuck at most.
	failuresKept = time.Hour
	// pruneEvery is how often events that no longer wait here are forgotten.
	pruneEvery = time.Minute
	// maxGapPause bounds the time between two attempts to apply an event that misses a version.
	maxGapPause = 2 * time.Second
)

// After MaxDeliveryCount deliveries, ten by default, the broker dead-letters a message out of
// order. Only a delivery whose lock expired counts: the network was unavailable with messages in
// hand, or the projector stood still. Ten of those may pass within seconds, while their cause lasts
// longer. So after freeDeliveries each further delivery waits: firstPause, then twice as long each
// time up to longestPause. Ten deliveries then take half a minute at least, whichever replicas
// receive them.
const (
	freeDeliveries = 3
	firstPause     = 500 * time.Millisecond
	longestPause   = 30 * time.Second
)

// decider decides what to do with the changes of a batch that an attempt to write it left
// undecided. It performs no I/O and reads no clock. It is safe for concurrent use.
//
// Guaranteed: an aggregate is parked for a failure of its own only after attempts have failed at
// the beginning and at the end of undecidedAfter, while changes of other aggregates kept being
// committed, with no gap between those commits longer than commitPause. A missing version is given
// up only after this process has seen the event wait for versionGapWait, with no interruption
// longer than that. Not guaranteed: that all processes agree. Each decides by what it has seen.
type decider struct {
	undecidedAfter time.Duration // 0: an event may fail for any time
	// commitPause is the longest pause between two commits that is no outage. It is longer than
	// maxStuck if undecidedAfter permits: at rest, only sessions that are accepted again commit.
	commitPause    time.Duration
	versionGapWait time.Duration

	mu         sync.Mutex
	waiting    map[waitKey]*wait // guarded by mu
	pruned     time.Time         // guarded by mu
	lastCommit time.Time         // of any aggregate; guarded by mu
	// steady is the first commit that is followed by others up to lastCommit, with no gap longer
	// than commitPause; guarded by mu.
	steady time.Time
}

// waitReason is why an event waits.
type waitReason uint8

const (
	eventFails     waitReason = iota // it could not be applied, for a reason of its own
	versionMissing                   // an earlier version of its aggregate has not come
	bodyMissing                      // its body could not be fetched
)

// waitKey names the event that an aggregate waits for. stream is set for versionMissing alone.
type waitKey struct {
	reason            waitReason
	stream, aggregate string
}

// wait is how long an event has waited, and when it is tried again.
type wait struct {
	messageID string
	first     time.Time // attempt
	counted   time.Time // eventFails: the first attempt in the present time of steady commits
	seen      time.Time // the last attempt
	due       time.Time // the next attempt
	backoff   retry.Backoff
	logged    time.Time
}

// attempt is one attempt to write a batch. The zero value stands for no attempt yet.
type attempt struct {
	made     bool
	limit    int             // changes that were tried at once; 0: all
	tried    bool            // at least one change could be tried
	timedOut bool            // its time ran out
	failures []apply.Failure // changes that failed for reasons of their own
	err      error           // why nothing more could be done; nil: everything was tried
	away     error           // why the projection's program could not be asked: nothing was tried
}

// action is what to do with a batch.
type action uint8

const (
	// finish: everything is decided.
	finish action = iota
	// write tries what can be written now.
	write
	// writeLater does that after a pause, in which the session is kept: nothing can be written at
	// all.
	writeLater
	// fetch gets a body, then writes.
	fetch
	// deferRest keeps what is undecided in hand, and continues with the messages behind it.
	deferRest
	// release has the messages delivered again.
	release
	// fail reports that nothing was decided although nothing waits.
	fail
)

// step is what to do with a batch, and what is to be reported.
type step struct {
	action action
	change int       // fetch: whose body
	until  time.Time // deferRest: when a change is to be tried again

	// pause is how long to wait before the changes are written; at the last delivery of a message,
	// before the messages are settled: then its aggregate is parked first.
	pause     time.Duration
	parkFirst bool

	available   bool  // the attempt has shown that the database is available
	unavailable error // it has shown that the database is not
	away        error // the projection's program cannot be asked
	versionGap  bool  // an event waits for a version
	failing     []failing
}

// failing is an event that cannot be applied, and that was not logged for some time.
type failing struct {
	change *envelope.Change
	err    error
	since  time.Duration
}

func newDecider(undecidedAfter, versionGapWait time.Duration) *decider {
	return &decider{
		undecidedAfter: undecidedAfter, versionGapWait: versionGapWait, waiting: make(map[waitKey]*wait),
		commitPause: max(undecidedAfter/2, min(undecidedAfter*3/4, maxStuck+maxStuck/10)),
	}
}

// next decides what to do with a batch after an attempt to write it, and before the first. It drops
// from the batch what is decided, and turns changes that have waited too long into poison, which
// the next attempt parks.
func (d *decider) next(now time.Time, b *batch, a attempt) (s step) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.prune(now)
	if !a.made {
		d.begin(now, b)
		return step{action: write, pause: redeliveryPause(b.deliveries), parkFirst: b.lastDelivery}
	}
	if a.away != nil {
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
		s.failing = append(s.failing, failing{c, err, now.Sub(w.first)})
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

// fetchFailed records that the body of a change could not be fetched: its aggregate waits.
func (d *decider) fetchFailed(now time.Time, b *batch, i int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := &b.changes[i]
	w := d.wait(now, waitKey{bodyMissing, "", c.Aggregate}, c.MessageID)
	w.due = now.Add(w.backoff.Next())
	b.skip[c.Aggregate] = true
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

func (d *decider) prune(now time.Time) {
	if now.Sub(d.pruned) >= pruneEvery {
		d.pruned = now
		maps.DeleteFunc(d.waiting, func(key waitKey, w *wait) bool { return d.outdated(now, key, w) })
	}
}

// redeliveryPause returns how long a batch waits when one of its messages is delivered for the n-th
// time.
func redeliveryPause(n uint32) time.Duration {
	if n <= freeDeliveries {
		return 0
	}
	return min(firstPause<<min(n-freeDeliveries-1, 10), longestPause)
}
