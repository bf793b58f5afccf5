package sessions

import (
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/sluice-cdc/sluice/shared/telemetry"
)

// maxPeekFailures is how many peeks may fail, when none has ever worked, before we conclude that
// the broker has no peek.
const maxPeekFailures = 8

// backlogEstimate learns whether sessions, when they are accepted, hold more than the one message
// they were granted for. Finding out costs a peek through the SDK, and a short wait directly.
type backlogEstimate struct {
	log *slog.Logger

	worked   atomic.Bool
	failures atomic.Int32
	// blind is set once peeks have proved not to work; messages are then received one by one.
	blind atomic.Bool

	mu       sync.Mutex
	schedule peekSchedule // of sessions just accepted; guarded by mu
}

// shouldPeek reports whether to find out how many messages a session holds that was just accepted.
// after is the session's own schedule from then on.
func (p *backlogEstimate) shouldPeek() (due bool, after peekSchedule) {
	p.mu.Lock()
	defer p.mu.Unlock()
	due = p.schedule.due()
	return due, peekSchedule{gap: p.schedule.gap, remaining: p.schedule.gap}
}

// found records whether a session that was just accepted held more.
func (p *backlogEstimate) found(more bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.schedule.observe(more)
}

// peeked records the outcome of a peek. A broker without peek fails all of them; a broken
// connection fails some.
func (p *backlogEstimate) peeked(err error) {
	if err == nil {
		p.worked.Store(true)
		return
	}
	if !p.worked.Load() && p.failures.Add(1) == maxPeekFailures {
		p.blind.Store(true)
		p.log.Warn("peeking at sessions does not work here; receiving messages one by one", telemetry.KeyError, err)
	}
}
