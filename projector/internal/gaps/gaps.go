// Package gaps remembers for how long events have waited for an earlier version of their aggregate.
//
// Guaranteed: an event is reported as overdue only after this process has seen it wait for that long, with no interruption longer
// than the wait itself. Not guaranteed: that all processes agree. Each measures for itself, so an event waits until one of them has
// seen it wait long enough.
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

// maxPause bounds the time between two attempts to apply an event that waits: meanwhile the session's other events wait, too.
const maxPause = 2 * time.Second

// New remembers gaps; wait is how long an event may wait.
func New(wait time.Duration) *Gaps { return &Gaps{wait: wait, waiting: make(map[string]*gap)} }

// Seen records that an event of an aggregate, which is named with its stream, waits for an earlier version. over says that it has waited too long; otherwise pause is
// the time until it should be retried.
func (g *Gaps) Seen(aggregate, messageID string) (pause time.Duration, over bool) {
	now := time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	for name, w := range g.waiting {
		if now.Sub(w.last) > g.wait+maxPause { // the version came, or another process has the session
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

// Waiting says whether an event was recently seen to wait, so that it may come again at any moment.
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
