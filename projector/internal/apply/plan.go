package apply

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/envelope"
)

// Kind is what became of a change.
type Kind uint8

// The kinds.
const (
	// Pending has not been decided: a failure that may heal came first, or a change of its aggregate that must be dealt
	// with before.
	Pending Kind = iota
	// Applied is committed, now.
	Applied
	// Duplicate was committed before, or is no news.
	Duplicate
	// Poison can never be applied. Its aggregate is parked, where the change names one.
	Poison
	// Parked follows a poison: its aggregate is parked.
	Parked
	// Gap is not applied: its version says that a change before it is missing, which may still come.
	Gap
)

// Result is what became of one change, with the reason where it is [Poison], [Parked] or [Gap].
type Result struct {
	Kind        Kind
	Reason      string // one word
	Description string // for people; may quote the database's message
	// Stack is the stack trace of a poison that is a panic of the projection. It is for the log alone: no record holds it.
	Stack string
	// recorded says of a poison that the parking of its aggregate is committed.
	recorded bool
}

// The reasons.
const (
	ReasonParked     = "AggregateParked"   // an earlier event of the aggregate could not be applied
	ReasonVersionGap = "VersionGap"        // an earlier event of the aggregate is missing
	ReasonProjection = "ProjectionFailed"  // the projection said that the event cannot be applied, or panicked
	ReasonPromise    = "ProjectionInvalid" // the projection's writes break its promise
	ReasonRefused    = "WriteRefused"      // the database refused the write for what it is
)

// planned is one change with the writes it causes.
type planned struct {
	index  int // in the batch
	change *envelope.Change
	writes []projection.Write
}

// group is what is to be written for one aggregate, in order.
type group struct {
	aggregate string
	events    []planned
	// oneByOne is set once the database refused several changes at once, to find the one it means.
	oneByOne bool
	// unguarded is set once the document was found to have no position: the filter must then say so.
	unguarded bool
	// unjudged is set where versions do not count on by one, so that a missing one cannot be told.
	unjudged bool
	// replay is how the guard of a parked aggregate stands whose events are applied all the same; else nil.
	replay *standing
}

// plan asks the projection for the writes of every pending change and groups them by aggregate, in order of first
// appearance. Changes at or below a position decided earlier in the batch are duplicates. The error is the first failure of
// the projection that may heal.
//
// A change stays pending where another one of its aggregate must be decided first: behind a poison or a failure; behind a
// change with a higher position that came before it; behind a gap of versions inside the batch, since only the guard
// knows what the first change behind the gap may follow; and above a [Gap], while those below it may close it.
func (a *Applier) plan(changes []envelope.Change, results []Result) ([]*group, error) {
	var groups []*group
	var failure error
	byAggregate := make(map[string]*group)
	decided := make(map[string]string) // the highest position
	blocked := make(map[string]bool)
	gap := make(map[string]string) // the position of the gap
	for i := range changes {
		c := &changes[i]
		g := byAggregate[c.Aggregate]
		switch waits, gapped := gap[c.Aggregate]; {
		case blocked[c.Aggregate]:
			continue
		case results[i].Kind == Poison, results[i].Kind == Parked:
			blocked[c.Aggregate] = true
			continue
		case results[i].Kind == Gap:
			gap[c.Aggregate] = c.Position
			continue
		case results[i].Kind != Pending:
			decided[c.Aggregate] = max(decided[c.Aggregate], c.Position)
			continue
		case c.Position <= decided[c.Aggregate], g.holds(c.Position):
			results[i] = Result{Kind: Duplicate}
			continue
		case gapped && c.Position > waits, c.Position < g.last():
			continue
		case !a.unjudged && g.leaves(c):
			blocked[c.Aggregate] = true
			continue
		}
		var writes []projection.Write
		var err error
		if a.skip == "" || c.MessageID != a.skip {
			if writes, err = project(a.projection, *c); err == nil {
				err = check(a.projection, c, writes)
			}
		}
		if err != nil {
			blocked[c.Aggregate] = true
			if Classify(err) == Permanent {
				results[i] = poison(ReasonProjection, err)
			} else if failure == nil {
				failure = fmt.Errorf("project event: %w", err)
			}
			continue
		}
		if g == nil {
			g = &group{aggregate: c.Aggregate, unjudged: a.unjudged}
			byAggregate[c.Aggregate] = g
			groups = append(groups, g)
		}
		g.events = append(g.events, planned{index: i, change: c, writes: writes})
	}
	return groups, failure
}

// last is the position of the last change planned; empty without any.
func (g *group) last() string {
	if g == nil || len(g.events) == 0 {
		return ""
	}
	return g.events[len(g.events)-1].change.Position
}

// holds says whether the change of a position is planned already.
func (g *group) holds(position string) bool {
	if g == nil {
		return false
	}
	_, found := slices.BinarySearchFunc(g.events, position, func(e planned, p string) int { return strings.Compare(e.change.Position, p) })
	return found
}

// leaves says whether a change leaves out a version after the last one planned.
func (g *group) leaves(c *envelope.Change) bool {
	if g == nil || !versioned(c) {
		return false
	}
	for _, e := range slices.Backward(g.events) {
		if versioned(e.change) {
			return c.Version > e.change.Version+1
		}
	}
	return false
}

// needs is the first of the first n changes that counts its aggregate on, and the version that must stand before it; 0
// when none is needed.
func (g *group) needs(n int) (index int, version int64) {
	if g.unjudged {
		return 0, 0
	}
	for i, e := range g.events[:n] {
		if versioned(e.change) {
			return i, e.change.Version - 1
		}
	}
	return 0, 0
}

// gap deals with a guard whose version is below what the group needs. What comes before the change that leaves a version
// out can be written; with nothing before it, that change is the gap, and what follows stays pending.
func (g *group) gap(stands int64, results []Result) bool {
	at, needed := g.needs(len(g.events))
	if needed == 0 || stands == 0 || stands >= needed {
		return false
	}
	if at == 0 {
		c := g.events[0].change
		results[g.events[0].index] = Result{Kind: Gap, Reason: ReasonVersionGap, Description: fmt.Sprintf(
			"the event has version %d, and the last one applied has %d: what is between has not come. Where the versions of the "+
				"source do not count on by one, set VERSION_GAP_WAIT=0", c.Version, stands)}
	}
	g.events = g.events[:at]
	return true
}

// Undecodable is the result of a message that cannot be read, from the error of [envelope.Decode].
func Undecodable(err error) Result {
	if e, ok := errors.AsType[*envelope.Error](err); ok {
		return Result{Kind: Poison, Reason: string(e.Reason), Description: e.Description}
	}
	return Result{Kind: Poison, Reason: "Undecodable", Description: err.Error()}
}

// project calls the projection; a panic in it is a permanent failure of this event, and of nothing else.
func project(p projection.Projection, c envelope.Change) (writes []projection.Write, err error) {
	defer func() {
		if r := recover(); r != nil {
			writes, err = nil, recovered(r)
		}
	}()
	return p.Project(projection.Event{Change: c})
}

func poison(reason string, err error) Result {
	if promise, ok := errors.AsType[promiseError](err); ok {
		return Result{Kind: Poison, Reason: ReasonPromise, Description: promise.Error()}
	}
	return Result{Kind: Poison, Reason: reason, Description: err.Error(), Stack: Stack(err)}
}

// drop takes the changes at or below position, which are already applied, off the front of a group.
func (g *group) drop(position string, results []Result) (dropped int) {
	for len(g.events) > 0 && g.events[0].change.Position <= position {
		results[g.events[0].index] = Result{Kind: Duplicate}
		g.events = g.events[1:]
		dropped++
	}
	return dropped
}

// done marks the first n changes of a group as applied and takes them off.
func (g *group) done(n int, results []Result) {
	for _, e := range g.events[:n] {
		results[e.index] = Result{Kind: Applied}
	}
	g.events = g.events[n:]
}

// refused deals with a permanent failure of the first n changes: of several, each is tried alone; a single one is the
// poison, and what follows it stays pending.
func (g *group) refused(n int, reason string, err error, results []Result) {
	if n > 1 {
		g.oneByOne = true
		return
	}
	results[g.events[0].index] = poison(reason, err)
	g.events = nil
}
