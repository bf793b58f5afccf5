package plan

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
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
	if large && s.PackEvents == 0 && !(shared && slices.ContainsFunc(d.plan.Steps, func(s Step) bool { return s.Kind == RefuseDocument })) {
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
	left := []Kind{Poison, RefuseDocument, RefuseMessage, ReplaceCollection}
	d.plan.Steps = slices.DeleteFunc(d.plan.Steps, func(step Step) bool { return slices.Contains(left, step.Kind) })
	for n, at := range moments(r, 1+r.IntN(3), d.length) {
		step := Step{At: at, Kind: TakeOut, Aggregate: fmt.Sprintf("stray-%d", n+1), Answer: []string{UsedUp, Expired}[r.IntN(2)], Random: r.Uint64()}
		step.Total = 2 + r.Int64N(8)
		step.Before = max(r.Int64N(2*step.Total)-step.Total, 0) // the first one, more often than not
		d.plan.Steps = append(d.plan.Steps, step)
	}
	for n, at := range moments(r, 1+r.IntN(2), d.length) {
		step := Step{At: at, Kind: Deadly, Aggregate: fmt.Sprintf("tired-%d", n+1), For: between(r, time.Second, 5*time.Second), Random: r.Uint64()}
		step.Total = 2 + r.Int64N(8)
		step.Before = r.Int64N(step.Total)
		d.plan.Steps = append(d.plan.Steps, step)
	}
	if last := (Step{At: Duration{d.length}, Kind: LastDeadly, Aggregate: "worn-1", For: between(r, time.Second, 5*time.Second), Random: r.Uint64()}); !s.WrongDeliveries {
		last.Total = 2 + r.Int64N(4)
		last.Before = r.Int64N(last.Total - 1)
		d.plan.Steps = append(d.plan.Steps, last)
	}
	slices.SortStableFunc(d.plan.Steps, func(a, b Step) int { return cmp.Compare(a.At.Duration, b.At.Duration) })
}

// The reasons for which the broker dead-letters a message.
const (
	UsedUp  = "used-up"
	Expired = "expired"
)

// brokers describes the fault in words.
func (s Step) brokers() string {
	switch s.Kind {
	case TakeOut:
		why := map[string]string{UsedUp: "its deliveries are used up", Expired: "its time is over"}[s.Answer]
		return fmt.Sprintf("Service Bus dead-letters version %d of %d of %s by itself: %s", s.Before+1, s.Total, s.Aggregate, why)
	case Deadly:
		return fmt.Sprintf("version %d of %d of %s kills every projector that has it in hand, which starts again after %s", s.Before+1, s.Total, s.Aggregate, s.For)
	case LastDeadly:
		return fmt.Sprintf("when all is at rest, version %d of %d of %s kills every projector that has it in hand, which starts again after %s",
			s.Before+1, s.Total, s.Aggregate, s.For)
	default:
		return s.single()
	}
}

// broker describes the properties of the broker in words; empty for the usual ones.
func (s Settings) broker() (words string) {
	if s.Partitioned {
		words += "; partitioned"
	}
	if s.Deliveries > 0 {
		words += fmt.Sprintf("; %d deliveries", s.Deliveries)
		if s.WrongDeliveries {
			words += ", of which projectors do not know"
		}
	}
	if s.TimeToLive.Duration > 0 {
		words += fmt.Sprintf("; messages live for %s", s.TimeToLive)
	}
	if s.BodyKiB > 0 {
		words += fmt.Sprintf("; bodies of %d KiB, of which a session has room for %d batches of %d", s.BodyKiB, Batches, s.BodiesInHand)
	}
	if s.VersionFirst > 0 {
		words += fmt.Sprintf("; versions begin with %d", s.VersionFirst)
	}
	return words
}

// Batches are what a projector's session has in hand at once: one that is completed, one that is
// applied, and one that arrives.
const Batches = 3

// RoomOfSession is how many bytes of messages one session may have in hand; 0: any number. It has
// half a body to spare.
func (s Settings) RoomOfSession() int64 { return Batches * s.batch() }

// RoomOfProjector is MAX_IN_FLIGHT_BYTES: a worker may have the last batch of one session in hand
// besides the next session's.
func (s Settings) RoomOfProjector() int64 { return int64(s.Sessions) * (Batches + 1) * s.batch() }

func (s Settings) batch() int64 { return int64(2*s.BodiesInHand+1) * int64(s.BodyKiB) * KiB / 2 }
