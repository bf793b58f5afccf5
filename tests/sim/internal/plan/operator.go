package plan

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/sluice-cdc/sluice/shared/envelope"
)

// operator draws what the operator does at the end: what is dropped, and which commands are killed.
func (d *drawing) operator() {
	for n := range d.plan.Steps {
		if d.plan.Steps[n].Kind == Poison {
			d.plan.Steps[n].Dropped = d.mending.IntN(2) == 0
		}
	}
	for n := range d.plan.Steps {
		if d.plan.Steps[n].Dropped {
			d.plan.Steps[n].KilledDrops = d.killed(d.mending)
		}
	}
	for n := range d.plan.Garbage {
		if d.plan.Garbage[n].Form != Unnamed {
			d.plan.Garbage[n].KilledDrops = d.killed(d.mending)
		}
	}
	d.plan.KilledReplays = d.killed(d.aim)
}

// killed returns how long the commands live that are killed: none, one or two.
func (d *drawing) killed(r *rand.Rand) (after []Duration) {
	for range r.IntN(3) {
		after = append(after, between(r, 0, 300*time.Millisecond))
	}
	return after
}

// CommandPacks is a command of the operator for the packs of a stream: [PacksOn] or [PacksOff].
const CommandPacks Kind = "command-packs"

// The commands of [CommandPacks].
const (
	PacksOn  = "on"
	PacksOff = "off"
)

// packs draws packs in half of the runs, more often with sessions of several aggregates. The
// operator confirms at the start or later that readers know them, and in a third of the runs lets
// no leader send packs for a while.
func (d *drawing) packs(r *rand.Rand) {
	s := &d.plan.Settings
	wanted, buckets := r.IntN(2) == 0, r.IntN(2) == 0
	events, bytes := []int{2, 3, 5, 20, 20}[r.IntN(5)], []int{1000, 4000, 60_000}[r.IntN(3)]
	atOnce, pauses := r.IntN(3) > 0, r.IntN(3) == 0
	later, off, on := between(r, 0, d.length/2), between(r, 10*time.Second, d.length/2), between(r, 2*time.Second, d.length/2)
	if !wanted {
		return
	}
	s.PackEvents, s.PackBytes, s.Format = events, bytes, "json"
	if buckets {
		s.SessionKey = envelope.Buckets(3)
	}
	if atOnce {
		later = Duration{}
	}
	for _, stream := range s.StreamNames() {
		d.add(Step{At: later, Kind: CommandPacks, Stream: stream, Command: PacksOn})
		if pauses {
			d.add(
				Step{At: sum(later, off.Duration), Kind: CommandPacks, Stream: stream, Command: PacksOff},
				Step{At: sum(later, off.Duration+on.Duration), Kind: CommandPacks, Stream: stream, Command: PacksOn})
		}
	}
}

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
		d.add(step)
	}
}

// NewVersion is an operator who builds a second version of the projection beside the first one,
// switches the readers to it, and in the end drops the first one.
const NewVersion Kind = "new-version"

// versions draws a second version in the runs in which it can be built: events are inserted and
// there is no snapshot, one stream carries all of them, each reaches the subscription, and MongoDB
// can read as of a moment. In these runs, strangers send no garbage that names an aggregate: an
// operator would have to drop it from each version.
func (d *drawing) versions(r *rand.Rand) {
	s := d.plan.Settings
	at := moments(r, 1, d.length)[0]
	step := Step{At: at, Kind: NewVersion, Random: r.Uint64(), KilledDrops: d.killed(r), Early: r.IntN(2) == 0, Times: r.IntN(3)}
	step.Total = 1 + r.Int64N(60)
	step.Before = 1 + r.Int64N(3)
	step.Delay = between(r, time.Millisecond, 60*time.Millisecond)
	if s.Documents != "" || s.Snapshot != "" || s.OnReplaced != "" || s.OnRefused != "" || s.Streams > 1 || s.Deliveries > 0 || s.MongoVersion == "4.4" {
		return
	}
	d.plan.Garbage = slices.DeleteFunc(d.plan.Garbage, func(g Garbage) bool { return g.Form != Unnamed })
	d.add(step)
}
