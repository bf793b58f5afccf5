// Package gaps remembers for how long events have waited for an earlier version of their aggregate.
//
// Guaranteed: an event is not said to have waited too long before it was seen to wait for that long, by this process, with
// no longer interruption than the wait itself. Not guaranteed: that all processes agree. Each counts for itself, so an event
// may wait for as long as it takes one of them to have counted enough.
package gaps

import (
	"sync"
	"time"

	"github.com/sluice-cdc/sluice/shared/retry"
)

// Gaps is safe for concurrent use.
type Gaps struct {
	wait time.Duration

	mu      sync.Mutex
	waiting map[string]*gap // by aggregate; guarded by mu
}

type gap struct {
	messageID   string
	first, last time.Time
	backoff     retry.Backoff
}

// maxPause bounds the time between two looks at an event that waits: while it passes, the session's other events wait too.
const maxPause = 2 * time.Second

// New remembers gaps; wait is how long an event may wait.
func New(wait time.Duration) *Gaps { return &Gaps{wait: wait, waiting: make(map[string]*gap)} }

// Seen takes that an event of an aggregate was found to wait. over says that it has waited long enough; else pause is how
// long to leave it before looking again.
func (g *Gaps) Seen(aggregate, messageID string) (pause time.Duration, over bool) {
	now := time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	for name, w := range g.waiting {
		if now.Sub(w.last) > g.wait+maxPause { // it healed, or somebody else has it
			delete(g.waiting, name)
		}
	}
	w := g.waiting[aggregate]
	if w == nil || w.messageID != messageID {
		w = &gap{messageID: messageID, first: now, backoff: retry.Backoff{Max: maxPause}}
		g.waiting[aggregate] = w
	}
	w.last = now
	left := g.wait - now.Sub(w.first)
	if left <= 0 {
		delete(g.waiting, aggregate)
		return 0, true
	}
	return min(w.backoff.Next(), left), false
}

// Waiting says whether an event has been seen to wait, and may be seen again any moment.
func (g *Gaps) Waiting() bool {
	now := time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, w := range g.waiting {
		if now.Sub(w.last) <= 2*maxPause {
			return true
		}
	}
	return false
}
