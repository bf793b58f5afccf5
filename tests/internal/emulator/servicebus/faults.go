package servicebus

import (
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/sluice-cdc/sluice/tests/internal/emulator/amqp"
	"github.com/sluice-cdc/sluice/tests/internal/emulator/servicebus/broker"
)

// Faults are what goes wrong with sends, by chance. Chances are from 0 to 1 and independent.
type Faults struct {
	// Seed makes the choices repeatable for the same order of sends.
	Seed uint64
	// Busy is the chance that a send is refused with server-busy, before anything is stored.
	Busy float64
	// LoseAck is the chance that a send is stored and its connection then cut unanswered.
	LoseAck float64
	// Detach is the chance that a send is stored, unanswered, and its link then forcibly
	// detached.
	Detach float64
	// AckDelay is how long every answer to a send takes. A connection waits as a whole, so
	// nothing on it overtakes the answer.
	AckDelay time.Duration
}

// faults draws them. The zero value lets nothing go wrong.
type faults struct {
	mu  sync.Mutex
	cfg Faults
	rng *rand.Rand
}

type fault struct {
	busy, loseAck, detach bool
	delay                 time.Duration
}

// SetFaults replaces what goes wrong from now on; the zero value ends it.
func (s *Server) SetFaults(f Faults) {
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	s.faults.cfg, s.faults.rng = f, rand.New(rand.NewPCG(f.Seed, f.Seed))
	s.faulty.Store(f != Faults{})
}

func (s *Server) drawFault() fault {
	if !s.faulty.Load() {
		return fault{}
	}
	f := &s.faults
	f.mu.Lock()
	defer f.mu.Unlock()
	// All three are drawn each time, so that one chance does not shift the others' sequence.
	a, b, c := f.rng.Float64(), f.rng.Float64(), f.rng.Float64()
	return fault{busy: a < f.cfg.Busy, loseAck: b < f.cfg.LoseAck, detach: c < f.cfg.Detach, delay: f.cfg.AckDelay}
}

var errBusy = &broker.Error{
	Condition:   broker.ServerBusy,
	Description: "The request was terminated because the entity is being throttled. Error code : 50009. Please wait 2 seconds and try again.",
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

// ExpireLocks lets every lock on an entity's messages and sessions run out now. It returns how
// many; none for an unknown entity.
func (s *Server) ExpireLocks(entity string) int {
	e, err := s.broker.Entity(entity)
	if err != nil {
		return 0
	}
	return e.ExpireLocks()
}
