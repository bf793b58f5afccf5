package sessions

import (
	"maps"
	"sync"
	"time"

	"github.com/sluice-cdc/sluice/shared/retry"
)

// failures are the sessions whose handling has failed lately, or that were released before a
// message came although the broker grants only those that have one. If that happens each time, as
// when the broker ends the link instead of sending the message, it offers the session again at
// once, which would be accepted and released as fast as the network permits. So from the second
// failure on a session is held for a while before it is handled, without a worker.
//
// Safe for concurrent use.
type failures struct {
	mu     sync.Mutex
	of     map[string]*failure // by session; guarded by mu
	pruned time.Time           // guarded by mu
}

type failure struct {
	last    time.Time
	again   bool // it had failed before
	backoff retry.Backoff
}

// failureKept is how long after a failure the next one is taken for one of the same cause.
const failureKept = time.Minute

// ended records how the handling of a session ended.
func (f *failures) ended(session string, failed bool, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before := f.of[session]
	switch {
	case !failed:
		delete(f.of, session)
	case before == nil || now.Sub(before.last) > failureKept:
		if f.of == nil {
			f.of = make(map[string]*failure)
		}
		f.of[session] = &failure{last: now, backoff: retry.Backoff{Max: 2 * time.Second}}
	default:
		before.last, before.again = now, true
	}
	if now.Sub(f.pruned) > failureKept {
		f.pruned = now
		maps.DeleteFunc(f.of, func(_ string, each *failure) bool { return now.Sub(each.last) > failureKept })
	}
}

// pause returns how long to hold a session before it is handled.
func (f *failures) pause(session string, now time.Time) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	if before := f.of[session]; before != nil && before.again && now.Sub(before.last) <= failureKept {
		return before.backoff.Next()
	}
	return 0
}
