// Package alone tells an aggregate that fails by itself from a database that is away.
//
// Guaranteed: an aggregate is given up only after it has failed for that long while changes of others were committed all the time: with
// no time longer than half of that in which none was. Not guaranteed: that all processes agree. Each goes by what it has seen itself.
package alone

import (
	"maps"
	"sync"
	"time"

	"github.com/sluice-cdc/sluice/shared/retry"
)

// Failing follows the aggregates that fail. It is safe for concurrent use.
type Failing struct {
	after time.Duration

	mu         sync.Mutex
	aggregates map[string]*failure // guarded by mu
	pruned     time.Time           // guarded by mu
	last       commit              // the last one; guarded by mu
	other      commit              // the last one of another aggregate than last's; guarded by mu
}

// commit is that of an aggregate's change.
type commit struct {
	aggregate string
	at        time.Time
}

type failure struct {
	messageID     string
	first         time.Time
	since         time.Time // others are known to succeed since; zero: they are not
	due           time.Time // for the next attempt
	logged, heard time.Time
	backoff       retry.Backoff
}

const (
	// maxPause bounds the time between two attempts.
	maxPause = 30 * time.Second
	// recently is how long a commit says that the database is there.
	recently = 30 * time.Second
	// remindEvery is how often a failure that lasts is told.
	remindEvery = 5 * time.Minute
	// pruneEvery is how often aggregates that another process has by now are forgotten.
	pruneEvery = time.Minute
)

// New follows aggregates; after is how long one may fail alone, 0: for ever.
func New(after time.Duration) *Failing {
	return &Failing{after: after, aggregates: make(map[string]*failure)}
}

// Verdict is what is known of an aggregate that has failed.
type Verdict struct {
	For   time.Duration // how long it has failed
	Alone bool          // a change of another was committed since it first did, and not long ago
	Over  bool          // it has failed alone for too long: give it up
	Tell  bool          // it is time to tell of it
}

// Committed records that a change of an aggregate was committed.
func (f *Failing) Committed(aggregate string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.last.aggregate != aggregate {
		f.other = f.last
	}
	f.last = commit{aggregate, time.Now()}
	delete(f.aggregates, aggregate)
}

// Failed records that a change of an aggregate could not be applied, and might be later.
func (f *Failing) Failed(aggregate, messageID string) Verdict {
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	old := func(w *failure) bool { return now.Sub(w.heard) > max(f.after, remindEvery) } // another process has it now
	if now.Sub(f.pruned) >= pruneEvery {
		f.pruned = now
		maps.DeleteFunc(f.aggregates, func(_ string, w *failure) bool { return old(w) })
	}
	w := f.aggregates[aggregate]
	if w == nil || w.messageID != messageID || old(w) {
		w = &failure{messageID: messageID, first: now, backoff: retry.Backoff{Initial: 200 * time.Millisecond, Max: maxPause}}
		f.aggregates[aggregate] = w
	}
	others := f.last.at
	if f.last.aggregate == aggregate {
		others = f.other.at
	}
	quiet := now.Sub(others) > f.after/2
	switch {
	case quiet || !others.After(w.first):
		w.since = time.Time{}
	case w.since.IsZero():
		w.since = others
	}
	v := Verdict{For: now.Sub(w.first), Alone: others.After(w.first) && now.Sub(others) <= recently, Tell: now.Sub(w.logged) >= remindEvery}
	v.Over = f.after > 0 && !w.since.IsZero() && now.Sub(w.since) >= f.after
	if v.Tell {
		w.logged = now
	}
	w.heard, w.due = now, now.Add(w.backoff.Next())
	if v.Over {
		delete(f.aggregates, aggregate)
	}
	return v
}

// Any reports whether an aggregate fails.
func (f *Failing) Any() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.aggregates) > 0
}

// Due is how long it is until an aggregate that has failed should be tried again; 0 for any other.
func (f *Failing) Due(aggregate string) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	w := f.aggregates[aggregate]
	if w == nil {
		return 0
	}
	return max(time.Until(w.due), 0)
}
