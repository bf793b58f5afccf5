package sessions

import (
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/sluice-cdc/sluice/shared/telemetry"
)

// maxPeekFailures is how many peeks may fail, with none that ever worked, before we take it that the broker has none.
const maxPeekFailures = 8

// prospects is what looks at sessions that were just accepted have shown so far: whether they hold more than the message that
// they were granted for. Through the SDK a look is a peek; directly, a short wait.
type prospects struct {
	log *slog.Logger

	worked   atomic.Bool
	failures atomic.Int32
	// blind says that peeks do not work here; messages are then received one by one.
	blind atomic.Bool

	mu      sync.Mutex
	outlook outlook // of sessions just accepted; guarded by mu
}

// prospect says whether to look at a session that was just accepted, and what to expect of it afterwards where not.
func (p *prospects) prospect() (due bool, after outlook) {
	p.mu.Lock()
	defer p.mu.Unlock()
	due = p.outlook.due()
	return due, outlook{gap: p.outlook.gap, left: p.outlook.gap}
}

// found takes the outcome of a look at a session that was just accepted.
func (p *prospects) found(more bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.outlook.saw(more)
}

// peeked takes the outcome of a peek. A broker that has none makes every peek fail, and so does a broken connection, but not
// always.
func (p *prospects) peeked(err error) {
	if err == nil {
		p.worked.Store(true)
		return
	}
	if !p.worked.Load() && p.failures.Add(1) == maxPeekFailures {
		p.blind.Store(true)
		p.log.Warn("peeking at sessions does not work here; receiving messages one by one", telemetry.KeyError, err)
	}
}
