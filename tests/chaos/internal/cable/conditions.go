package cable

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// Conditions are how a direction of a cable is. The zero value is a good one.
type Conditions struct {
	// Cut: nothing arrives.
	Cut bool
	// Delay is how long every packet takes.
	Delay time.Duration
	// Loss is the share of packets that are lost, from 0 to 1.
	Loss float64
	// Late is the share of packets that take LateBy longer, so that those behind overtake them.
	Late   float64
	LateBy time.Duration
}

// String says it in words.
func (c Conditions) String() string {
	if c.Cut {
		return "cut"
	}
	var words []string
	if c.Delay > 0 {
		words = append(words, fmt.Sprintf("%s of delay", c.Delay))
	}
	if c.Loss > 0 {
		words = append(words, fmt.Sprintf("%g %% lost", c.Loss*100))
	}
	if c.Late > 0 {
		words = append(words, fmt.Sprintf("%g %% late by %s", c.Late*100, c.LateBy))
	}
	if len(words) == 0 {
		return "good"
	}
	return strings.Join(words, ", ")
}

// fate is what becomes of one packet.
type fate int

const (
	passes fate = iota
	late
	lost
	cut
)

// decide draws what becomes of a packet, and when it arrives. Every packet takes two numbers, so that what becomes of one does
// not depend on the conditions that others met.
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
