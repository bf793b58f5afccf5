package cable

import (
	"math/rand/v2"
	"time"
)

// Conditions are the faults of one direction of a cable. The zero value has no fault.
type Conditions struct {
	// Cut means that no packet arrives.
	Cut bool
	// Delay is how long every packet takes.
	Delay time.Duration
	// Loss is the share of packets that are lost, from 0 to 1.
	Loss float64
	// Late is the share of packets that take LateBy longer, so that later ones overtake them.
	Late   float64
	LateBy time.Duration
}

// fate is the outcome of one packet.
type fate int

const (
	passes fate = iota
	late
	lost
	cut
)

// decide draws the fate of a packet, and when it arrives. Every packet consumes two numbers, so
// that the fate of one packet does not depend on the conditions of others.
func decide(c Conditions, random *rand.Rand) (fate, time.Duration) {
	loss, lateness := random.Float64(), random.Float64()
	switch {
	case c.Cut:
		return cut, 0
	case loss < c.Loss:
		return lost, 0
	case lateness < c.Late:
		return late, c.Delay + c.LateBy
	}
	return passes, c.Delay
}
