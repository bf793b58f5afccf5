package apply

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/envelope"
)

// errHangs is a projection that has not returned from an event.
var errHangs = errors.New("the projection has not returned from the event; what it waits for, or computes, does not end")

// patienceShare is the part of an attempt's time for which a projection may keep one event; the
// rest is for the others.
const patienceShare = 4

// projections are the calls of a projection that did not return in time. A call cannot be ended: it
// goes on, and its event is not given to the projection again before it has returned. It is safe
// for concurrent use.
type projections struct {
	mu    sync.Mutex
	hangs map[string]*projected // by message id; guarded by mu
}

// projected is what a projection gave for one event, once returned is closed.
type projected struct {
	began    time.Time
	returned chan struct{}
	writes   []projection.Write
	err      error
}

// project returns the writes of one event. Errors: errHangs if the projection does not return
// within a part of ctx's time.
func (s *projections) project(ctx context.Context, p projection.Projection, c *envelope.Change) ([]projection.Write, error) {
	deadline, bounded := ctx.Deadline()
	if s == nil || !bounded || c.MessageID == "" {
		_, writes, err := project(p, *c)
		return writes, err
	}
	s.mu.Lock()
	call, hung := s.hangs[c.MessageID]
	s.mu.Unlock()
	if !hung {
		call = &projected{began: time.Now(), returned: make(chan struct{})}
		change := *c
		go func() {
			defer close(call.returned)
			_, call.writes, call.err = project(p, change)
		}()
		patience := time.NewTimer(time.Until(deadline) / patienceShare)
		defer patience.Stop()
		select {
		case <-call.returned:
		case <-patience.C:
		case <-ctx.Done():
		}
	}
	select {
	case <-call.returned:
		if hung {
			s.set(c.MessageID, nil)
		}
		return call.writes, call.err
	default:
		s.set(c.MessageID, call)
		return nil, fmt.Errorf("%w (since %s)", errHangs, call.began.UTC().Format(time.RFC3339))
	}
}

func (s *projections) set(messageID string, call *projected) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if call == nil {
		delete(s.hangs, messageID)
		return
	}
	if s.hangs == nil {
		s.hangs = make(map[string]*projected)
	}
	s.hangs[messageID] = call
}
