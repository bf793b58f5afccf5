package publish

import (
	"fmt"
	"sync"

	"github.com/sluice-cdc/sluice/shared/telemetry"
)

const (
	// maxParkedPerSession is how many messages of a session are parked without an acknowledgement of a later one between them. More of them
	// are a session that is refused.
	maxParkedPerSession = 5
	// maxUnprovenSessions is how many sessions may have messages parked, and none acknowledged since, on the proof of other sessions alone and
	// for conditions that may pass. More of them are a partition that is away.
	maxUnprovenSessions = 3
)

// parkLimiter counts the messages that were parked, by session, until the session has an acknowledgement. It is safe for concurrent use.
type parkLimiter struct {
	mu       sync.Mutex
	sessions map[string]*parkedSession // guarded by mu
}

type parkedSession struct {
	messages int
	unproven bool // by the proof of other sessions, and a condition that may pass
	reported bool // that no more are parked
}

// acknowledged forgets the sessions of an acknowledged load.
func (c *parkLimiter) acknowledged(sessions []*backlog) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.sessions) == 0 {
		return
	}
	for _, s := range sessions {
		delete(c.sessions, s.session)
	}
}

// allow counts a message that is about to be parked. An error means that it must not be: too many were.
func (c *parkLimiter) allow(session string, history *failureHistory) (first bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	of := c.sessions[session]
	if of == nil {
		of = &parkedSession{}
		if c.sessions == nil {
			c.sessions = map[string]*parkedSession{}
		}
		c.sessions[session] = of
	}
	unproven := history.proof != sameSession && !history.rejected && !history.permanent
	switch others := c.unprovenSessions(of); {
	case of.messages >= maxParkedPerSession:
		err = fmt.Errorf("%d messages of session %q were parked one after another and none was taken between them", of.messages, session)
	case unproven && others >= maxUnprovenSessions:
		err = fmt.Errorf("messages of %d sessions were parked and none of theirs was taken since", others)
	default:
		of.messages++
		of.unproven = of.unproven || unproven
		return false, nil
	}
	first, of.reported = !of.reported, true
	return first, err
}

// unprovenSessions returns the number of other sessions with messages that were parked on the proof of other sessions; the caller holds mu.
func (c *parkLimiter) unprovenSessions(but *parkedSession) (sessions int) {
	for _, s := range c.sessions {
		if s != but && s.unproven {
			sessions++
		}
	}
	return sessions
}

// allowPark returns an error if a message must not be parked although it is convicted: its session waits until it is taken.
func (p *Publisher) allowPark(i *item, history *failureHistory, why error) error {
	if p.config.Refusals == nil {
		return nil
	}
	first, err := p.parkLimiter.allow(i.session, history)
	if first {
		p.log.Error("Service Bus refuses one message after another: no more are parked, and the session waits until it takes them",
			telemetry.KeySession, i.session, telemetry.KeyPosition, i.change.Position, telemetry.KeyError, fmt.Errorf("%w: %w", err, why),
			telemetry.KeyToDo, "look at the state of the entity and its partitions; the session goes on when its messages are taken")
	}
	return err
}
