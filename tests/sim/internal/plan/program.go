package plan

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/sluice-cdc/sluice/shared/envelope"
)

// The faults of a projection that is a program of its own, beside one projector.
const (
	FailAnswers   Kind = "fail-answers"   // of a program to calls
	KillProgram   Kind = "kill-program"   // it starts again after a while, perhaps under another declaration
	PoisonProgram Kind = "poison-program" // an event of one aggregate at which the program fails
)

// The failed answers of a [FailAnswers]. An event that is alone in its call fails by them once: an
// event that fails again is one that the program cannot handle.
const (
	Slow      = "slow"      // the answer takes seconds
	Hung      = "hung"      // it never comes
	Broken    = "500"       // the status
	Malformed = "400"       // likewise
	Busy      = "503"       // likewise, with a time to wait
	Truncated = "truncated" // half of it comes, and the connection ends
	Lost      = "lost"      // the connection ends without an answer
	Twice     = "twice"     // it comes two times
)

// Answers are all of them.
var Answers = []string{Slow, Hung, Broken, Malformed, Busy, Truncated, Lost, Twice}

// What a program does with the event of a [PoisonProgram], which is the event's type.
const (
	Throws      = "Throws"
	Kills       = "Kills"
	Nonsensical = "Nonsensical" // its writes are not as the protocol has them
)

var programPoison = []string{Throws, Kills, Nonsensical}

// program draws the runs whose projection is a program of its own, and what it does wrong. Poison
// has no manner, because those are of values that JSON cannot carry; a projector that outlives its
// program does not watch processes.
func (d *drawing) program(r *rand.Rand) {
	s := &d.plan.Settings
	likely, failing, killed, poison := r.IntN(3) == 0, r.IntN(5), r.IntN(3), r.IntN(3)
	if !likely || s.Projection != Timeline || s.Deliveries > 0 {
		return
	}
	s.Program, s.WatchProcesses = true, false
	for n := range d.plan.Steps {
		d.plan.Steps[n].Manner = ""
	}
	for _, at := range moments(r, failing, d.length) {
		d.add(Step{
			At: at, Kind: FailAnswers, Answer: Answers[r.IntN(len(Answers))], Chance: float64(5+r.IntN(60)) / 100,
			For: between(r, time.Second, 15*time.Second), Random: r.Uint64(),
		})
	}
	if failing > 0 {
		s.UndecidedAfter = seconds(600) // an event may fail by one fault after another, while others do not
	}
	projectors := s.ProjectorNames()
	for _, at := range moments(r, killed, d.length) {
		d.add(Step{
			At: at, Kind: KillProgram, Of: projectors[r.IntN(len(projectors))], For: between(r, 0, 10*time.Second), Takes: r.IntN(2) == 0,
		})
	}
	for n, at := range moments(r, poison, d.length) {
		step := Step{
			At: at, Kind: PoisonProgram, Aggregate: fmt.Sprintf("fatal-%d", n+1), Manner: programPoison[r.IntN(len(programPoison))],
			Random: r.Uint64(), Total: 1 + r.Int64N(8), For: aWhile(r),
		}
		step.Before = r.Int64N(step.Total)
		// As with a hung projection: what waits in a shared session may fill its room.
		fills := s.BodyKiB > 0 && s.SessionKey != envelope.SessionKey{}
		if r.IntN(2) == 0 && !fills {
			step.For = Duration{}
		}
		if step.Manner == Kills {
			s.Healthy = 0 // every aggregate waits while the program is away
		}
		d.add(step)
	}
}
