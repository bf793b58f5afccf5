package chaos

import (
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluice-cdc/sluice/tests/chaos/internal/cable"
	"github.com/sluice-cdc/sluice/tests/internal/wire"
)

// weather remembers when a slot's connection to Service Bus was in trouble.
type weather struct {
	mu     sync.Mutex
	storms []storm // guarded by mu
}

// storm is a period of trouble; ended is zero while it lasts.
type storm struct{ began, ended time.Time }

// addr returns the address at which the slot reaches a server.
func (s *slot) addr(server wire.Server) netip.Addr {
	servers := wire.Servers()
	return s.cable.Servers()[slices.Index(servers[:], server)]
}

// disturb changes the slot's network.
func (s *slot) disturb(t trouble) {
	servers := wire.Servers()
	to := t.to
	if len(to) == 0 {
		to = servers[:]
	}
	if slices.Contains(to, wire.ServiceBus) {
		s.mu.Lock()
		s.storms = append(s.storms, storm{began: time.Now()})
		s.mu.Unlock()
	}
	for _, server := range to {
		if t.forgets {
			s.cable.Forget(s.addr(server))
		}
		for _, d := range t.directions {
			s.cable.Set(d, s.addr(server), t.is)
		}
	}
}

// heal restores the slot's network.
func (s *slot) heal() {
	for _, server := range wire.Servers() {
		for _, d := range cable.Both() {
			s.cable.Set(d, s.addr(server), cable.Conditions{})
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.storms); n > 0 && s.storms[n-1].ended.IsZero() {
		s.storms[n-1].ended = time.Now()
	}
}

// late reports whether a message that arrived at this moment may have been sent a while before. The
// kernel resends lost packets at intervals that double, so after a storm a packet may take as long
// as the storm lasted.
func (w *weather) late(at time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.storms, func(s storm) bool {
		return !at.Before(s.began) && (s.ended.IsZero() || at.Before(s.ended.Add(s.ended.Sub(s.began)+5*time.Second)))
	})
}

// mayBeLate reports whether a message may have been delayed by the network or by a frozen process.
// A frozen process may wake in the middle of a send and finish it, so the fence is judged only if
// no process is frozen.
func (r *ring) mayBeLate(leader string, at time.Time) bool {
	if r.options.fenceAfter == 0 {
		return true
	}
	for _, s := range r.producers {
		if s.Name == leader || strings.HasPrefix(leader, s.Name+"-r") {
			return s.late(at)
		}
	}
	return false
}
