package servicebus

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/sluice-cdc/sluice/tests/emulator/internal/amqp"
	"github.com/sluice-cdc/sluice/tests/emulator/internal/broker"
)

// Faults describes what goes wrong while they are injected. The choices are repeatable: they depend
// only on Seed and on the order of the operations of one kind.
type Faults struct {
	Seed uint64
	// Send is a message or batch, Receive a run of deliveries on one link, Settle an outcome,
	// Accept the opening of a receiver or session, Manage a request to $management.
	Send, Receive, Settle, Accept, Manage Fault
	// ReleaseLag is how long a session cannot be accepted again after its release.
	ReleaseLag time.Duration
	// LoseLock is the chance that the lock of a message, or of its session, runs out just
	// before the message is settled.
	LoseLock float64
}

// Fault describes what may happen to operations of one kind. Chances are from 0 to 1 and
// independent; if several apply, the first in the order below decides.
type Fault struct {
	// Drop is the chance that the connection is cut and nothing else happens.
	Drop float64
	// Busy is the chance that the operation is refused with server-busy; a link that
	// receives is detached with it.
	Busy float64
	// LoseAck is the chance that the operation happens and its connection is cut in place of
	// the answer: the client cannot know.
	LoseAck float64
	// Detach is the chance that the operation happens and its link is forcibly detached in
	// place of the answer. A receiving link is detached before it delivers.
	Detach float64
	// End is the chance of what Detach does, with the whole AMQP session of the link.
	End float64
	// PerSecond, above 0, throttles: what exceeds it within a second is refused with
	// server-busy. It counts the messages of sends, and operations otherwise.
	PerSecond int
	// Delay is how long every answer or delivery takes, and Jitter how much longer at most.
	// Others are not held up, so answers may overtake each other; deliveries of one link
	// do not.
	Delay, Jitter time.Duration
}

// kind is a kind of operation.
type kind int

const (
	sending kind = iota
	receiving
	settling
	accepting
	managing
	kinds
)

// injected is one set of faults in force.
type injected struct {
	faults   [kinds]Fault
	loseLock float64
	lag      time.Duration

	mu      sync.Mutex // guards everything below
	chances [kinds]*rand.Rand
	jitter  [kinds]*rand.Rand
	ends    [kinds]*rand.Rand
	locks   *rand.Rand
	second  [kinds]second
}

// second counts what was let through since it began.
type second struct {
	began time.Time
	n     int
}

// Inject lets faults happen until end is called. Several sets add up: an operation is at the
// mercy of each of them.
func (s *Server) Inject(f Faults) (end func()) {
	x := &injected{
		faults:   [kinds]Fault{sending: f.Send, receiving: f.Receive, settling: f.Settle, accepting: f.Accept, managing: f.Manage},
		loseLock: f.LoseLock, lag: f.ReleaseLag, locks: rand.New(rand.NewPCG(f.Seed, uint64(2*kinds))),
	}
	for k := range kinds {
		x.chances[k] = rand.New(rand.NewPCG(f.Seed, uint64(k)))
		x.ends[k] = rand.New(rand.NewPCG(f.Seed, uint64(3*kinds+k)))
		x.jitter[k] = rand.New(rand.NewPCG(f.Seed, uint64(kinds+k)))
	}
	s.editFaults(func(in []*injected) []*injected { return append(in, x) })
	return func() {
		s.editFaults(func(in []*injected) []*injected {
			return slices.DeleteFunc(in, func(y *injected) bool { return x == y })
		})
	}
}

// editFaults replaces the list, which those who draw read without a lock.
func (s *Server) editFaults(f func([]*injected) []*injected) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var now []*injected
	if p := s.faults.Load(); p != nil {
		now = slices.Clone(*p)
	}
	now = f(now)
	s.faults.Store(&now)
	var lag time.Duration
	for _, x := range now {
		lag = max(lag, x.lag)
	}
	s.broker.LagReleases(lag)
}

func (s *Server) injected() []*injected {
	if p := s.faults.Load(); p != nil {
		return *p
	}
	return nil
}

// fault is the effect on one operation.
type fault struct {
	drop, busy, loseAck, detach bool

	throttled bool // busy, since there are too many
	unpaid    bool // busy, since the namespace has no credits left
	end       bool // detach, and the whole AMQP session ends
}

// refusal returns the error of a request that is refused for load.
func (f fault) refusal() error {
	switch {
	case f.throttled:
		return errThrottled
	case f.unpaid:
		return errUnpaid
	}
	return errBusy
}

// detachNow detaches a link, or ends its AMQP session.
func (f fault) detachNow(l *amqp.Link) {
	if f.end {
		l.EndSession(forced())
		return
	}
	l.Detach(forced())
}

// strike draws for an operation that counts n, and charges its credits if nothing else stops it.
func (s *Server) strike(k kind, n, credits int) (f fault) {
	for _, x := range s.injected() {
		x.strike(k, n, &f)
	}
	if !f.drop && !f.busy && !s.credits.take(credits) {
		f.busy, f.unpaid = true, true
	}
	return f
}

func (x *injected) strike(k kind, n int, f *fault) {
	x.mu.Lock()
	defer x.mu.Unlock()
	c, r := x.faults[k], x.chances[k]
	// All are drawn each time, so that one chance does not shift the others' sequence.
	drop, busy, loseAck, detach := r.Float64() < c.Drop, r.Float64() < c.Busy, r.Float64() < c.LoseAck, r.Float64() < c.Detach
	end := x.ends[k].Float64() < c.End
	throttled := !drop && !busy && x.throttles(k, n)
	f.drop, f.busy, f.loseAck, f.detach = f.drop || drop, f.busy || busy || throttled, f.loseAck || loseAck, f.detach || detach || end
	f.throttled, f.end = f.throttled || throttled, f.end || end
}

func (x *injected) throttles(k kind, n int) bool {
	limit, s := x.faults[k].PerSecond, &x.second[k]
	if limit <= 0 {
		return false
	}
	if now := time.Now(); now.Sub(s.began) >= time.Second {
		*s = second{began: now}
	}
	if s.n > 0 && s.n+n > limit { // a batch above the limit goes through alone
		return true
	}
	s.n += n
	return false
}

// strikesLock draws whether a lock is lost now.
func (s *Server) strikesLock() (lost bool) {
	for _, x := range s.injected() {
		x.mu.Lock()
		lost = x.locks.Float64() < x.loseLock || lost
		x.mu.Unlock()
	}
	return lost
}

// delay returns how long an answer or a delivery has to wait.
func (s *Server) delay(k kind) (d time.Duration) {
	for _, x := range s.injected() {
		d += x.faults[k].Delay
		if most := x.faults[k].Jitter; most > 0 {
			x.mu.Lock()
			d += time.Duration(x.jitter[k].Int64N(int64(most) + 1))
			x.mu.Unlock()
		}
	}
	return d
}

// errThrottled is the answer to a namespace that asks for more than its share.
var errThrottled = &broker.Error{
	Condition:   broker.ServerBusy,
	Description: "The request was terminated because the namespace is being throttled. Error code : 50002. Sub error : 102. Please wait 4 seconds and try again.",
}

// errUnpaid is the answer to a namespace of the Standard tier that has no credits left.
var errUnpaid = &broker.Error{
	Condition:   broker.ServerBusy,
	Description: "The request was terminated because the namespace is being throttled. Error code : 50009. Please wait 2 seconds and try again. To know more visit https://aka.ms/sbResourceMgrExceptions.",
}

var errBusy = &broker.Error{
	Condition:   broker.ServerBusy,
	Description: "The request was terminated because the entity is being throttled. Error code : 50009. Please wait 2 seconds and try again.",
}
