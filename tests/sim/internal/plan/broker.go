package plan

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/sluice-cdc/sluice/shared/envelope"
)

// KiB is the unit of bodies.
const KiB = 1 << 10

// broker draws the properties of the subscription, which messages it dead-letters on its own, and
// how large they are.
func (d *drawing) broker(r *rand.Rand) {
	s := &d.plan.Settings
	partitioned, large, usesUp := r.IntN(4) == 0, r.IntN(5) == 0, r.IntN(4) == 0 && d.feature == ""
	first, body, fit := r.Int64N(2), 16<<r.IntN(3), 1+r.IntN(3)
	if s.GapWait.Duration > 0 {
		s.VersionFirst = first
	}
	if s.Partitioned = partitioned; partitioned && s.Scope == "mixed" { // which takes no batch of several sessions
		s.Scope = "auto"
	}
	if s.Documents != "" {
		return
	}
	// In a shared session, what is refused may fill the room; with nothing else to apply anywhere,
	// it cannot be known that it fails alone, and it is not parked.
	shared := s.SessionKey != envelope.SessionKey{}
	if large && s.PackEvents == 0 && (!shared || !d.plan.Has(RefuseDocument)) {
		s.BodyKiB, s.BodiesInHand = body, fit
		d.garbage = 0 // behind a small message, a burst of larger ones may exceed the room once
	}
	if usesUp {
		d.usedUp(r)
	}
}

// usedUp makes a run in which the broker dead-letters messages on its own, and projectors park
// before it does. Everything else that parks aggregates is left out: which reason parks which of
// them is not known in advance.
func (d *drawing) usedUp(r *rand.Rand) {
	s := &d.plan.Settings
	s.Deliveries = 4 + r.IntN(3)
	s.WrongDeliveries = r.IntN(3) == 0
	if ttl := between(r, 20*time.Second, 90*time.Second); r.IntN(2) == 0 {
		s.TimeToLive = ttl
	}
	d.garbage = 0
	d.leaveOut(Poison, RefuseDocument, RefuseMessage, ReplaceCollection)
	for n, at := range moments(r, 1+r.IntN(3), d.length) {
		step := Step{At: at, Kind: TakeOut, Aggregate: fmt.Sprintf("stray-%d", n+1), Answer: []string{UsedUp, Expired}[r.IntN(2)], Random: r.Uint64()}
		step.Total = 2 + r.Int64N(8)
		step.Before = max(r.Int64N(2*step.Total)-step.Total, 0) // the first one, more often than not
		d.add(step)
	}
	for n, at := range moments(r, 1+r.IntN(2), d.length) {
		step := Step{At: at, Kind: Deadly, Aggregate: fmt.Sprintf("tired-%d", n+1), For: between(r, time.Second, 5*time.Second), Random: r.Uint64()}
		step.Total = 2 + r.Int64N(8)
		step.Before = r.Int64N(step.Total)
		d.add(step)
	}
	if last := (Step{At: Duration{d.length}, Kind: LastDeadly, Aggregate: "worn-1", For: between(r, time.Second, 5*time.Second), Random: r.Uint64()}); !s.WrongDeliveries {
		last.Total = 2 + r.Int64N(4)
		last.Before = r.Int64N(last.Total - 1)
		d.add(last)
	}
}

// The reasons for which the broker dead-letters a message.
const (
	UsedUp  = "used-up"
	Expired = "expired"
)

// Batches are what a projector's session has in hand at once: one that is completed, one that is
// applied, and one that arrives.
const Batches = 3

// RoomOfSession returns how many bytes of messages one session may have in hand; 0: any number. It
// has half a body to spare.
func (s Settings) RoomOfSession() int64 { return Batches * s.batch() }

// RoomOfProjector is MAX_IN_FLIGHT_BYTES: a worker may have the last batch of one session in hand
// besides the next session's.
func (s Settings) RoomOfProjector() int64 { return int64(s.Sessions) * (Batches + 1) * s.batch() }

func (s Settings) batch() int64 { return int64(2*s.BodiesInHand+1) * int64(s.BodyKiB) * KiB / 2 }
