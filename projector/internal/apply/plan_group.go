package apply

import (
	"fmt"
	"slices"

	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/envelope"
)

// planned is one change with the writes it causes.
type planned struct {
	index  int // in the batch
	change *envelope.Change
	writes []projection.Write
}

// group is the planned writes of one aggregate and stream, in order.
type group struct {
	aggregate string
	session   string // that the events came in; empty in a replay
	events    []planned
	guardSlot
	// shared is set once the guard was found to hold those of several streams.
	shared bool
	// ignoreVersions is set if versions do not grow by one, so that a missing one cannot be
	// recognised.
	ignoreVersions bool
	// firstVersion is the version that aggregates begin with; 0: any.
	firstVersion int64
	// through is the position up to which the read model was built for the aggregate; empty if it
	// was not.
	through string
	// past is a gap of versions that is given up, in a replay.
	past Past
	// stub is set if the aggregate's document held nothing but its guard when it was last read.
	stub bool
	// replay is the guard of a parked aggregate whose events are replayed; otherwise nil.
	replay *guardState
	// failed is the change that could not be applied now, for a reason of its own; the group then
	// has no events left.
	failed *Failure
	// doubt is a refusal of the first doubtful events that may be the guard's, or another unique
	// index's.
	doubt    error
	doubtful int
	doubts   int // how often in a row
	// most is how many events are written at once, after more turned out to be too many; 0: all. It
	// is 1 once the database refused several at once, to find the one it means.
	most int
	// decided are the changes that were taken off events, with their outcomes.
	decided []decision
}

// decide records the outcome of a change.
func (g *group) decide(e planned, r Result) {
	g.decided = append(g.decided, decision{e.index, r})
}

// writes returns those of the first n changes, in order.
func (g *group) writes(n int) (all []projection.Write) {
	for _, e := range g.events[:n] {
		all = append(all, e.writes...)
	}
	return all
}

// last returns the position of the last change planned; empty without any.
func (g *group) last() string {
	if g == nil {
		return ""
	}
	return g.events[len(g.events)-1].change.Position
}

// skipsVersion reports whether a change leaves out more versions after the last one planned than
// may be missing.
func (g *group) skipsVersion(c *envelope.Change, may int64) bool {
	if g == nil || !versioned(c) {
		return false
	}
	for _, e := range slices.Backward(g.events) {
		if versioned(e.change) {
			return c.Version > e.change.Version+1+may
		}
	}
	return false
}

// stopAtGap compares the guard with the version that the group requires, and reports whether one is
// missing. The changes before the one that leaves it out can be written; without any, that
// change is the gap, and the ones behind it stay pending.
func (g *group) stopAtGap(s Guard) bool {
	at, required := g.requiredVersion(len(g.events))
	none := g.skipsFirst(len(g.events)) && s.Position == ""
	if required == 0 || (s.Version == 0 && !none) || s.Version >= required {
		return false
	}
	if at == 0 {
		g.decide(g.events[0], Result{Kind: Gap, Reason: ReasonVersionGap, Description: missing(g.events[0].change.Version, s.Version, g.firstVersion)})
	}
	g.events = g.events[:at]
	return true
}

// missing describes a gap of versions before one, behind the last that was applied, if any.
func missing(version, last, first int64) string {
	if last == 0 {
		return fmt.Sprintf("the event has version %d, and nothing of its aggregate was applied, whose versions begin with %d: those before it "+
			"are missing. If aggregates begin with other versions, set VERSION_FIRST=0", version, first)
	}
	return fmt.Sprintf("the event has version %d, and the last one applied has %d: the versions in between are missing. If the versions of "+
		"the source do not grow by one, set VERSION_GAP_WAIT=0", version, last)
}

// dropApplied takes the changes that are already applied off the front of the group: those at or
// below the position, and rows that the guard has reached.
func (g *group) dropApplied(position string, s Guard) (dropped int) {
	for len(g.events) > 0 && (g.events[0].change.Position <= position || g.repeats(s)) {
		g.decide(g.events[0], Result{Kind: Duplicate})
		g.events = g.events[1:]
		dropped++
	}
	return dropped
}

// committed takes the first n changes off: their effects are committed. idle: nothing was written.
func (g *group) committed(n int, idle bool) {
	for _, e := range g.events[:n] {
		g.decide(e, Result{Kind: Applied, Idle: idle})
	}
	g.events = g.events[n:]
}

// fails handles a failure of the first n changes that may be retried: of several, each is tried
// alone.
func (g *group) fails(n int, err error) {
	if n > 1 {
		g.most = 1
		return
	}
	g.failed = &Failure{g.events[0].index, err}
	g.events = nil
}

// split halves the number of changes that are written at once, after the first n were too many. A
// change that is too large on its own is refused.
func (g *group) split(n int, err error) {
	if g.most = n / 2; n == 1 {
		g.refused(1, ReasonRefused, err)
	}
}

// refused handles a permanent failure of the first n changes: of several, each is tried alone; a
// single one is the poison, and what follows it stays pending.
func (g *group) refused(n int, reason string, err error) {
	if n > 1 {
		g.most = 1
		return
	}
	g.decide(g.events[0], poison(reason, err))
	g.events = nil
}
