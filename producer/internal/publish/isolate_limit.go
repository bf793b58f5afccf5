package publish

import (
	"fmt"
	"sync"

	"github.com/sluice-cdc/sluice/shared/telemetry"
)

const (
	// maxParkedPerSession is how many messages of a session are parked without an acknowledgement
	// in between. A higher number indicates that the whole session is refused.
	maxParkedPerSession = 5
	// maxUnprovenSessions is how many sessions may have parked messages, and no acknowledgement
	// since, if the only proof came from other sessions and the conditions may be temporary. A
	// higher number indicates an unavailable partition.
	maxUnprovenSessions = 3
)

// parkLimiter counts the parked messages of each session until the session has an acknowledgement.
// It is safe for concurrent use.
type parkLimiter struct {
	mu       sync.Mutex
	sessions map[string]*parkedSession // guarded by mu
}

type parkedSession struct {
	messages int
	unproven bool // parked on the proof of other sessions, for a condition that may be temporary
	reported bool // the log has reported that no more messages are parked
}

// acknowledged clears the counts of the sessions of an acknowledged batch.
func (c *parkLimiter) acknowledged(sessions []*backlog) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range sessions {
		delete(c.sessions, s.session)
	}
}

// allow counts a message that is about to be parked. It returns an error if too many were parked;
// first reports whether that is the first such error of the session.
func (c *parkLimiter) allow(session string, history *failureHistory) (first bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	of := c.sessions[session]
	if of == nil {
		of = &parkedSession{}
		c.sessions[session] = of
	}
	unproven := history.proof != sameSession && !history.rejected && !history.permanent
	switch others := c.unprovenSessions(of); {
	case of.messages >= maxParkedPerSession:
		err = fmt.Errorf("%d messages of session %q were parked one after another and none was accepted in between", of.messages, session)
	case unproven && others >= maxUnprovenSessions:
		err = fmt.Errorf("messages of %d sessions were parked and none of theirs was accepted since", others)
	default:
		of.messages++
		of.unproven = of.unproven || unproven
		return false, nil
	}
	first, of.reported = !of.reported, true
	return first, err
}

// unprovenSessions returns the number of other sessions with unproven parked messages. The caller
// holds mu.
func (c *parkLimiter) unprovenSessions(but *parkedSession) (sessions int) {
	for _, s := range c.sessions {
		if s != but && s.unproven {
			sessions++
		}
	}
	return sessions
}

// allowPark returns an error if a refused message must not be parked: its session then waits until
// the message is accepted.
func (p *Publisher) allowPark(i *item, history *failureHistory, why error) error {
	if p.config.Refusals == nil {
		return nil
	}
	first, err := p.parkLimiter.allow(i.session, history)
	if first {
		p.log.Error("Service Bus refuses one message after another: no more are parked, and the session waits until they are accepted",
			telemetry.KeySession, i.session, telemetry.KeyPosition, i.change.Position, telemetry.KeyError, fmt.Errorf("%w: %w", err, why),
			telemetry.KeyToDo, "check the state of the entity and its partitions; the session continues when its messages are accepted")
	}
	return err
}
