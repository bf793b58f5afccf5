package publish

import (
	"fmt"
	"sync"

	"github.com/sluice-cdc/sluice/shared/telemetry"
)

const (
	// mostCondemned is how many messages of a session are parked without an acknowledgement of a later one between them. More of them
	// are a session that is refused.
	mostCondemned = 5
	// mostUnproven is how many sessions may have messages parked, and none acknowledged since, on the proof of other sessions alone and
	// for conditions that may pass. More of them are a partition that is away.
	mostUnproven = 3
)

// condemned counts the messages that were parked, by session, until the session has an acknowledgement. It is safe for concurrent use.
type condemned struct {
	mu       sync.Mutex
	sessions map[string]*sentence // guarded by mu
}

type sentence struct {
	messages int
	unproven bool // by the proof of other sessions, and a condition that may pass
	reported bool // that no more are parked
}

// acknowledged forgets the sessions of an acknowledged load.
func (c *condemned) acknowledged(sessions []*backlog) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.sessions) == 0 {
		return
	}
	for _, s := range sessions {
		delete(c.sessions, s.session)
	}
}

// add counts a message that is about to be parked. An error means that it must not be: too many were.
func (c *condemned) add(session string, held *suspicion) (first bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	of := c.sessions[session]
	if of == nil {
		of = &sentence{}
		if c.sessions == nil {
			c.sessions = map[string]*sentence{}
		}
		c.sessions[session] = of
	}
	unproven := held.proof != sameSession && !held.rejected && !held.final
	switch others := c.unproven(of); {
	case of.messages >= mostCondemned:
		err = fmt.Errorf("%d messages of session %q were parked one after another and none was taken between them", of.messages, session)
	case unproven && others >= mostUnproven:
		err = fmt.Errorf("messages of %d sessions were parked and none of theirs was taken since", others)
	default:
		of.messages++
		of.unproven = of.unproven || unproven
		return false, nil
	}
	first, of.reported = !of.reported, true
	return first, err
}

// unproven returns the number of other sessions with messages that were parked on the proof of other sessions; the caller holds mu.
func (c *condemned) unproven(but *sentence) (sessions int) {
	for _, s := range c.sessions {
		if s != but && s.unproven {
			sessions++
		}
	}
	return sessions
}

// mayPark returns an error if a message must not be parked although it is convicted: its session waits until it is taken.
func (p *Publisher) mayPark(i *item, held *suspicion, why error) error {
	if p.config.Refusals == nil {
		return nil
	}
	first, err := p.condemned.add(i.session, held)
	if first {
		p.log.Error("Service Bus refuses one message after another: no more are parked, and the session waits until it takes them",
			telemetry.KeySession, i.session, telemetry.KeyPosition, i.change.Position, telemetry.KeyError, fmt.Errorf("%w: %w", err, why),
			telemetry.KeyToDo, "look at the state of the entity and its partitions; the session goes on when its messages are taken")
	}
	return err
}
