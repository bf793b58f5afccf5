package publish

import (
	"sync"
	"time"
)

// sizeRise is how long after an objection the broker is offered twice as much. The time doubles
// each time it objects to that as well, up to sizeRiseMost: a broker that cannot take more should
// not have to end many links.
const (
	sizeRise     = 10 * time.Minute
	sizeRiseMost = 24 * time.Hour
)

// sizeLimit is how many messages a batch may hold, or events a message. It is lowered when the
// broker objects to a whole whose parts it accepts, and rises again: what is taken for an objection
// to the size may be an outage that had passed when the parts were sent.
//
// Safe for concurrent use.
type sizeLimit struct {
	mu      sync.Mutex
	most    int           // as configured; guarded by mu
	limit   int           // guarded by mu
	changed time.Time     // when the limit changed last; guarded by mu
	wait    time.Duration // from then until it rises; guarded by mu
	risen   bool          // the last change was a rise; guarded by mu
}

// set sets the configured limit.
func (l *sizeLimit) set(most int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.most, l.limit = most, most
}

// get returns the limit.
func (l *sizeLimit) get(now time.Time) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.limit < l.most && now.Sub(l.changed) >= l.wait {
		l.limit, l.changed, l.risen = min(2*l.limit, l.most), now, true
	}
	return l.limit
}

// lower records that the broker objects to a size. The limit is then to, and at least 1.
func (l *sizeLimit) lower(now time.Time, to int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if to = max(to, 1); to >= l.limit {
		return
	}
	switch {
	case l.wait == 0, l.risen && now.Sub(l.changed) > l.wait: // it accepted the rise
		l.wait = sizeRise
	case l.risen:
		l.wait = min(2*l.wait, sizeRiseMost)
	}
	l.limit, l.changed, l.risen = to, now, false
}
