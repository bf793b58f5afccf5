package plan

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// The ways in which a stream has a snapshot.
const (
	// SnapshotStart begins each stream with the documents that its collection holds.
	SnapshotStart = "start"
	// SnapshotHeal replaces history that is lost: ON_HISTORY_LOST=snapshot.
	SnapshotHeal = "heal"
)

// LoseHistory is history that MongoDB has lost when the producers read on.
const LoseHistory Kind = "lose-history"

// snapshots draws a snapshot in a part of the runs whose events are inserted: documents that are
// there before the streams begin, or history that is lost once or twice. It leaves out what takes
// documents away, what publishes events again or leaves them out, and, where rows repeat events,
// what parks aggregates. Runs with repairs, which are refused meanwhile, have none.
func (d *drawing) snapshots(r *rand.Rand) {
	s := &d.plan.Settings
	form, chunk, rate := []string{"", "", SnapshotStart, SnapshotHeal}[r.IntN(4)], 1+r.IntN(30), []int{0, 0, 3, 20}[r.IntN(4)]
	before, losses := 20+r.IntN(120), moments(r, 1+r.IntN(2), d.length)
	var events []Event
	for range before {
		e := Event{Aggregate: fmt.Sprintf("hot-%d", r.IntN(d.hot)), Kind: fmt.Sprintf("Kind%d", r.IntN(3))}
		if r.IntN(2) == 0 {
			e.Aggregate = fmt.Sprintf("cold-%d", r.IntN(2*d.cold)) // half of them have no other events
		}
		if collection := Collections[r.IntN(s.Streams)]; s.Shared {
			e.Collection = collection
		}
		events = append(events, e)
	}
	var steps []Step
	for _, at := range losses {
		steps = append(steps, Step{At: at, Kind: LoseHistory, Silent: r.IntN(2) == 0, For: between(r, time.Second, 10*time.Second)})
	}
	repairs := slices.ContainsFunc(d.plan.Steps, func(step Step) bool { return step.Kind == Repair })
	if form == "" || repairs || s.Documents != "" || s.OnReplaced != "" || s.Deliveries > 0 || s.MongoVersion == "4.4" {
		return
	}
	s.Snapshot, s.SnapshotChunk, s.SnapshotRate = form, chunk, rate
	s.GapWait = seconds(30) // without judged versions no projection distinguishes repeated rows from its events
	s.OnRefused = ""        // a version that is left out would be a gap
	left := []Kind{Rewind, RefuseMessage}
	if form == SnapshotStart {
		d.plan.Before = events
	} else {
		d.plan.Garbage = nil
		left = append(left, Poison, RefuseDocument)
		d.plan.Steps = append(d.plan.Steps, steps...)
	}
	d.plan.Steps = slices.DeleteFunc(d.plan.Steps, func(step Step) bool { return slices.Contains(left, step.Kind) })
	slices.SortStableFunc(d.plan.Steps, func(a, b Step) int { return cmp.Compare(a.At.Duration, b.At.Duration) })
}

// lost describes the fault in words.
func (s Step) lost() string {
	if s.Kind == LoseHistory {
		return fmt.Sprintf("kill every producer, and let MongoDB forget all changes %s later, when they start again", s.For)
	}
	return string(s.Kind)
}

// snapshot describes the snapshot in words; empty without one.
func (s Settings) snapshot() string {
	if s.Snapshot == "" {
		return ""
	}
	what := map[string]string{SnapshotStart: "streams begin with a snapshot", SnapshotHeal: "a snapshot replaces lost history"}[s.Snapshot]
	return fmt.Sprintf("; %s, in chunks of %d at %d a second (0: any number)", what, s.SnapshotChunk, s.SnapshotRate)
}
