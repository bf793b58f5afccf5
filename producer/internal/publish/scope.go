package publish

import (
	"math"
	"sync/atomic"
)

// Scope defines which sessions one batch may hold.
type Scope string

// The scopes of a batch.
const (
	// ScopeSession limits a batch to one session. Partitioned entities refuse anything else.
	ScopeSession Scope = "session"
	// ScopeMixed fills batches with as many sessions as fit. It is only for entities that are not
	// partitioned.
	ScopeMixed Scope = "mixed"
	// ScopeAuto is ScopeMixed until the broker refuses a batch because of its sessions, then
	// ScopeSession.
	ScopeAuto Scope = "auto"
)

// sessionLimit is how many sessions a batch may hold. Safe for concurrent use.
type sessionLimit struct {
	auto     bool
	most     atomic.Int64
	learning atomic.Bool // a batch of learningSessions is outstanding
}

const (
	// learningSessions is the limit of the one batch that shows whether the entity is partitioned;
	// the batches beside it hold one session. If it is refused, it is sent again session by
	// session.
	learningSessions = 8
	// provingSessions is how many sessions an accepted batch must hold to prove that the entity is
	// not partitioned. Fewer may belong to the same of 16 partitions.
	provingSessions = 4
)

func newSessionLimit(scope Scope) *sessionLimit {
	l := &sessionLimit{auto: scope == ScopeAuto}
	switch scope {
	case ScopeMixed:
		l.most.Store(math.MaxInt)
	case ScopeAuto:
		l.most.Store(learningSessions)
	default:
		l.most.Store(1)
	}
	return l
}

// begin returns the limit of the next batch, for which end must be called.
func (l *sessionLimit) begin() int {
	most := l.most.Load()
	if most == learningSessions && !l.learning.CompareAndSwap(false, true) {
		return 1
	}
	return int(most)
}

// end records that a batch with a limit from begin has been sent, or will not be.
func (l *sessionLimit) end(limit int) {
	if limit == learningSessions {
		l.learning.Store(false)
	}
}

// mixed reports whether every batch may hold several sessions.
func (l *sessionLimit) mixed() bool { return l.most.Load() == math.MaxInt }

// accepted records that the broker accepted a batch with that many sessions.
func (l *sessionLimit) accepted(sessions int) {
	if sessions >= provingSessions {
		l.most.CompareAndSwap(learningSessions, math.MaxInt)
	}
}

// refused records that the broker refused a batch with that many sessions although it accepted each
// of its parts. sure is false if it did not answer, which may be because of the batch's size. The
// number of sessions is taken for the reason if explained, and not for the first time if known.
func (l *sessionLimit) refused(sessions int, sure bool) (explained, known bool) {
	if !l.auto || sessions < 2 || !sure && l.mixed() {
		return false, false
	}
	return true, l.most.Swap(1) == 1
}
