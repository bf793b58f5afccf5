// Package gaps remembers for how long events have waited for an earlier version of their aggregate.
//
// Guaranteed: an event is reported as overdue only after this process has seen it wait for that long, with no interruption longer
// than the wait itself. Not guaranteed: that all processes agree. Each measures for itself, so an event waits until one of them has
// seen it wait long enough.
package gaps

import (
	"maps"
	"sync"
	"time"

	"github.com/sluice-cdc/sluice/shared/retry"
)

// Gaps is safe for concurrent use.
type Gaps struct {
	wait time.Duration

	mu      sync.Mutex
	waiting map[string]*gap // by aggregate; guarded by mu
	pruned  time.Time       // guarded by mu
}

type gap struct {
	messageID   string
	first, last time.Time
	backoff     retry.Backoff
}

const (
	// maxPause bounds the time between two attempts to apply an event that waits.
	maxPause = 2 * time.Second
	// pruneEvery is how often what waits no longer is forgotten.
	pruneEvery = time.Minute
)

// New remembers gaps; wait is how long an event may wait.
func New(wait time.Duration) *Gaps { return &Gaps{wait: wait, waiting: make(map[string]*gap)} }

// Seen records that an event of an aggregate, which is named with its stream, waits for an earlier version. over says that it has waited too long; otherwise pause is
// the time until it should be retried.
func (g *Gaps) Seen(aggregate, messageID string) (pause time.Duration, over bool) {
	now := time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	old := func(w *gap) bool { return now.Sub(w.last) > g.wait+maxPause } // the version came, or another process has the session
	if now.Sub(g.pruned) >= pruneEvery {
		g.pruned = now
		maps.DeleteFunc(g.waiting, func(_ string, w *gap) bool { return old(w) })
	}
	w := g.waiting[aggregate]
	if w == nil || w.messageID != messageID || old(w) {
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
