package plan

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

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
	d.plan.Steps = append(d.plan.Steps, step)
	slices.SortStableFunc(d.plan.Steps, func(a, b Step) int { return cmp.Compare(a.At.Duration, b.At.Duration) })
}

// BuildsVersion reports whether a second version is built.
func (p Plan) BuildsVersion() bool {
	return slices.ContainsFunc(p.Steps, func(s Step) bool { return s.Kind == NewVersion })
}

// version describes the step in words.
func (s Step) version() string {
	if s.Kind != NewVersion {
		return s.lost()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "the operator builds version 2 of the projection in ranges of %d documents (%d at once; reads of MongoDB take %s)%s", s.Total, s.Before, s.Delay, killed(s.KilledDrops))
	if s.Early {
		b.WriteString("; its projector is started before")
	}
	fmt.Fprintf(&b, ", and is killed %d times; the readers are switched to it", s.Times)
	return b.String()
}
