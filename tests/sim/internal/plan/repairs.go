package plan

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// Repair is a document of the read model that is wrong, and an operator who repairs its aggregate
// from the source while everything goes on.
const Repair Kind = "repair"

// repairs draws one to three repairs in the runs in which an aggregate's documents show all that
// was published of it: events are inserted, no collection is replaced, one stream carries the
// aggregate, and MongoDB can read as of a moment. Not if the broker takes messages out.
func (d *drawing) repairs(r *rand.Rand) {
	s := d.plan.Settings
	times := moments(r, 1+r.IntN(3), d.length)
	if s.Projection != Timeline || s.Documents != "" || s.OnReplaced != "" || s.Shared || s.Deliveries > 0 || s.MongoVersion == "4.4" {
		return
	}
	for n, at := range times {
		step := Step{At: at, Kind: Repair, Aggregate: fmt.Sprintf("wrong-%d", n+1), Random: r.Uint64(), KilledDrops: d.killed(r)}
		step.Total = 10 + r.Int64N(40)
		step.Before = 1 + r.Int64N(step.Total/2)
		step.Delay = between(r, time.Millisecond, 60*time.Millisecond)
		d.plan.Steps = append(d.plan.Steps, step)
	}
	slices.SortStableFunc(d.plan.Steps, func(a, b Step) int { return cmp.Compare(a.At.Duration, b.At.Duration) })
}

// repair is what happens, in words.
func (s Step) repair() string {
	if s.Kind == Repair {
		return fmt.Sprintf("behind version %d of %d of %s its read model becomes wrong, and the operator repairs it while the others come one by one; "+
			"reads of MongoDB take %s%s", s.Before, s.Total, s.Aggregate, s.Delay, killed(s.KilledDrops))
	}
	return s.version()
}
