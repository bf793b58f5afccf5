package servicebus

import (
	"fmt"
	"strings"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/amqp"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/broker"
)

// What goes wrong at a moment. See Faults for what goes wrong by chance, or for a while.

// DropConnections cuts every live connection at once, without a word.
func (s *Server) DropConnections() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		c.Close()
	}
}

// RefuseSends makes the next n sends to a queue or topic fail with server-busy.
func (s *Server) RefuseSends(entity string, n int) error {
	in, err := s.broker.Inbox(entity)
	if err != nil {
		return fmt.Errorf("refuse sends: %w", err)
	}
	in.RefuseSends(n)
	return nil
}

// LoseAcknowledgements makes the next n sends, to any entity, be stored and then cut the
// connection instead of being answered: the sender cannot know what happened.
func (s *Server) LoseAcknowledgements(n int) { s.loseAcks.Store(int64(n)) }

func (s *Server) loseAck() bool {
	for {
		n := s.loseAcks.Load()
		if n <= 0 {
			return false
		}
		if s.loseAcks.CompareAndSwap(n, n-1) {
			return true
		}
	}
}

// DetachLinks forcibly detaches every link to an entity, or to anything under it, on every
// connection, as the service does when it moves an entity. It returns how many.
func (s *Server) DetachLinks(entity string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, cl := range s.conns {
		n += cl.claims.detach(strings.ToLower(entity))
	}
	return n
}

func (c *claims) detach(entity string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for l, x := range c.links {
		if path := strings.ToLower(x.path); path == entity || strings.HasPrefix(path, entity+"/") {
			l.Detach(forced())
			n++
		}
	}
	return n
}

func forced() *amqp.Error {
	return &amqp.Error{Condition: "amqp:link:detach-forced", Description: "The link is force detached by the broker."}
}

// The reasons with which the broker itself dead-letters messages that receivers did not settle.
const (
	UsedUp  = broker.ReasonMaxDelivery
	Expired = broker.ReasonExpired
)

// TakeOut dead-letters every later message of a queue or subscription for which of returns a
// reason, such as [UsedUp] or [Expired], before a receiver can receive it, as if its deliveries, or
// its time, were used up. It has effect until end is called. of must be quick and must not call the
// server. An unknown entity is an error.
func (s *Server) TakeOut(entity string, of func(Accepted) (reason string)) (end func(), err error) {
	e, err := s.broker.Entity(entity)
	if err != nil {
		return nil, fmt.Errorf("take messages out: %w", err)
	}
	return e.TakeOut(func(p *broker.Payload) string {
		a := Accepted{Entity: entity, MessageID: p.MessageID, SessionID: p.SessionID, Size: len(p.Body), Encoded: p.Body}
		a.readProperties(p.Body)
		return of(a)
	}), nil
}

// ExpireLocks lets every lock on an entity's messages and sessions run out now. It returns how
// many; none for an unknown entity.
func (s *Server) ExpireLocks(entity string) int {
	e, err := s.broker.Entity(entity)
	if err != nil {
		return 0
	}
	return e.ExpireLocks()
}

// EndSessions ends the AMQP sessions of up to limit links to an entity, or to anything under it,
// with an error, and leaves their connections open. It returns how many links it found.
func (s *Server) EndSessions(entity, condition string, limit int) int {
	s.mu.Lock()
	var links []*amqp.Link
	for _, cl := range s.conns {
		links = append(links, cl.claims.under(strings.ToLower(entity))...)
	}
	s.mu.Unlock()
	links = links[:min(len(links), limit)]
	for _, l := range links {
		l.EndSession(&amqp.Error{Condition: amqp.Symbol(condition), Description: "The session is ended by the broker."})
	}
	return len(links)
}

// under returns the links to entity, which is in lower case, and to what is below it.
func (c *claims) under(entity string) []*amqp.Link {
	c.mu.Lock()
	defer c.mu.Unlock()
	var links []*amqp.Link
	for l, x := range c.links {
		if path := strings.ToLower(x.path); path == entity || strings.HasPrefix(path, entity+"/") {
			links = append(links, l)
		}
	}
	return links
}
