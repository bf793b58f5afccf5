package apply

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/envelope"
)

// errHangs means that a projection has not returned from an event.
var errHangs = errors.New("the projection has not returned from the event; what it waits for, or computes, does not end")

const (
	// callShare is the part of an attempt's time for which a projection may keep one event; the
	// rest is for the others. Each call that already hangs halves it, down to minCall: so many
	// events from which the projection does not return occupy a worker little longer than one.
	callShare = 8
	minCall   = 2 * time.Millisecond
	// maxHanging bounds the calls that hang. Beyond it, the projection gets no further event.
	maxHanging = 1000
	// keepReturned is how long the writes of a call that returned late wait for the next attempt.
	keepReturned = 10 * time.Minute
)

// projections are the calls of a projection that did not return in time. A call cannot be ended: it
// continues, and its event gets no other one before it has returned. Earlier events of its
// aggregate do: they may have been planned and not written. It is safe for concurrent use.
type projections struct {
	mu      sync.Mutex
	late    map[string]*projected // by message id; guarded by mu
	hanging int                   // of these, the calls that have not returned; guarded by mu
}

// projected is a call for one event. The writes, and when it returned, are valid once done is
// closed.
type projected struct {
	began  time.Time
	done   chan struct{}
	writes []projection.Write
	err    error
	ended  time.Time
	// recorded is set once a record shows that the projection has the event, and forget removes it;
	// both are guarded by the mutex of projections.
	recorded bool
	forget   func()
}

func (p *projected) returned() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

func (p *projected) hangs() error {
	return fmt.Errorf("%w (since %s)", errHangs, p.began.UTC().Format(time.RFC3339))
}

// project returns the writes of one event. Errors: errHangs if the projection does not return
// within a part of ctx's time, or has not returned from an earlier call for it.
func (s *projections) project(ctx context.Context, p projection.Projection, c *envelope.Change) ([]projection.Write, error) {
	deadline, bounded := ctx.Deadline()
	if !bounded || c.MessageID == "" {
		_, writes, err := project(p, *c)
		return writes, err
	}
	earlier, hanging := s.take(c.MessageID)
	switch {
	case earlier != nil && !earlier.returned():
		return nil, earlier.hangs()
	case earlier != nil:
		return earlier.writes, earlier.err
	case hanging >= maxHanging:
		return nil, fmt.Errorf("%w; %d events are in this state, so that it is given no other one", errHangs, hanging)
	}
	call := &projected{began: time.Now(), done: make(chan struct{})}
	go s.run(call, p, *c)
	limit := time.NewTimer(max(time.Until(deadline)/callShare>>min(hanging, 30), minCall))
	defer limit.Stop()
	select {
	case <-call.done:
	case <-limit.C:
	case <-ctx.Done():
	}
	if s.keep(c.MessageID, call) {
		return nil, call.hangs()
	}
	return call.writes, call.err
}

// run makes a call.
func (s *projections) run(call *projected, p projection.Projection, c envelope.Change) {
	_, call.writes, call.err = project(p, c)
	call.ended = time.Now()
	s.mu.Lock()
	close(call.done)
	if s.late[c.MessageID] == call {
		s.hanging--
	}
	forget := call.forget
	s.mu.Unlock()
	if forget != nil {
		forget()
	}
}

// unrecorded returns the call of an event that hangs, unless a record shows it; nil if there is
// none. The caller records it and calls keepRecord.
func (s *projections) unrecorded(c *envelope.Change) *projected {
	s.mu.Lock()
	defer s.mu.Unlock()
	call := s.late[c.MessageID]
	if call == nil || call.returned() || call.recorded {
		return nil
	}
	call.recorded = true
	return call
}

// retryRecord lets the next attempt record a call, after an error.
func (s *projections) retryRecord(call *projected) {
	s.mu.Lock()
	defer s.mu.Unlock()
	call.recorded = false
}

// isLate reports whether the call for an event did not return in time.
func (s *projections) isLate(messageID string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.late[messageID] != nil
}

// keepRecord makes a call remove its record once it returns.
func (s *projections) keepRecord(call *projected, forget func()) {
	s.mu.Lock()
	returned := call.returned()
	if !returned {
		call.forget = forget
	}
	s.mu.Unlock()
	if returned {
		forget()
	}
}

// take returns the call for an event that did not return in time, or nil, and how many calls hang.
// A call that has returned is forgotten.
func (s *projections) take(messageID string) (call *projected, hanging int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if call = s.late[messageID]; call != nil && call.returned() {
		delete(s.late, messageID)
	}
	return call, s.hanging
}

// keep keeps a call, unless it has returned.
func (s *projections) keep(messageID string, call *projected) (hangs bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if call.returned() {
		return false
	}
	maps.DeleteFunc(s.late, func(_ string, p *projected) bool { return p.returned() && time.Since(p.ended) > keepReturned })
	if s.late == nil {
		s.late = make(map[string]*projected)
	}
	s.late[messageID] = call
	s.hanging++
	return true
}

// Hanging returns how many calls of the projection have not returned in time, and still run.
func (a *Applier) Hanging() int {
	_, hanging := a.calls.take("")
	return hanging
}
