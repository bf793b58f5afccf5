package mongo

import (
	"context"
	"sync"
	"time"
)

// ttlInterval is how often a server searches for expired documents.
const ttlInterval = time.Minute

// ttl deletes what TTL indexes call expired, once a minute while there are such
// indexes and this member is primary. It needs no goroutine of its own between two
// rounds, so it also works where only ServeConn is used.
type ttl struct {
	mu      sync.Mutex
	timer   *time.Timer // nil: not armed
	stopped bool        // no round starts any more
	rounds  sync.WaitGroup
}

// arm makes sure that a round will come.
func (s *Server) armTTL() {
	s.ttl.mu.Lock()
	defer s.ttl.mu.Unlock()
	if s.ttl.timer == nil && !s.ttl.stopped {
		s.ttl.timer = time.AfterFunc(ttlInterval, s.expire)
	}
}

func (s *Server) expire() {
	s.ttl.mu.Lock()
	s.ttl.timer = nil
	if s.ttl.stopped {
		s.ttl.mu.Unlock()
		return
	}
	s.ttl.rounds.Add(1)
	s.ttl.mu.Unlock()
	defer s.ttl.rounds.Done()
	again := true
	if primary, _ := s.primary(); primary {
		ctx, cancel := context.WithTimeout(context.Background(), ttlInterval/2) // a transaction may hold a document
		defer cancel()
		var err error
		if again, err = s.eng.Expire(ctx); err != nil {
			s.log.Warn("expired documents were not deleted", "error", err)
		}
	}
	if again {
		s.armTTL()
	}
}

// stopTTL ends the rounds and joins the one that runs; start allows them again.
func (s *Server) stopTTL() {
	s.ttl.mu.Lock()
	s.ttl.stopped = true
	if s.ttl.timer != nil {
		s.ttl.timer.Stop()
		s.ttl.timer = nil
	}
	s.ttl.mu.Unlock()
	s.ttl.rounds.Wait()
}

func (s *Server) startTTL() {
	s.ttl.mu.Lock()
	s.ttl.stopped = false
	s.ttl.mu.Unlock()
	s.armTTL() // the first round finds out whether there is anything to do
}
