package apply

import (
	"errors"
	"fmt"

	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/envelope"
)

// Kind is what became of a change.
type Kind uint8

// The kinds.
const (
	// Pending has not been decided: a failure that may heal came first, or a poisoned change of its aggregate.
	Pending Kind = iota
	// Applied is committed, now.
	Applied
	// Duplicate was committed before, or is no news.
	Duplicate
	// Poison can never be applied.
	Poison
)

// Result is what became of one change, with the reason where it is [Poison].
type Result struct {
	Kind        Kind
	Reason      string // one word
	Description string // for people; may quote the database's message
}

// The reasons of poison.
const (
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
}

// plan asks the projection for the writes of every pending change and groups them by aggregate, in order of first
// appearance. Changes at or below a position seen earlier in the batch are duplicates. A poisoned change is marked, and
// what follows it in its aggregate stays pending: the poison must be out of the way before something later moves the
// guard past it. The error is the first failure of the projection that may heal; its aggregate is held up too.
func plan(p projection.Projection, changes []envelope.Change, results []Result) ([]*group, error) {
	var groups []*group
	var failure error
	byAggregate := make(map[string]*group)
	last := make(map[string]string)
	blocked := make(map[string]bool)
	for i := range changes {
		c := &changes[i]
		switch {
		case blocked[c.Aggregate]:
			continue
		case results[i].Kind == Poison:
			blocked[c.Aggregate] = true
			continue
		case results[i].Kind != Pending:
			last[c.Aggregate] = max(last[c.Aggregate], c.Position)
			continue
		case c.Position <= last[c.Aggregate]:
			results[i] = Result{Kind: Duplicate}
			continue
		}
		writes, err := project(p, *c)
		if err == nil {
			err = check(p, c, writes)
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
		g, ok := byAggregate[c.Aggregate]
		if !ok {
			g = &group{aggregate: c.Aggregate}
			byAggregate[c.Aggregate] = g
			groups = append(groups, g)
		}
		last[c.Aggregate] = c.Position
		g.events = append(g.events, planned{index: i, change: c, writes: writes})
	}
	return groups, failure
}

// project calls the projection; a panic in it is a permanent failure of this event, and of nothing else.
func project(p projection.Projection, c envelope.Change) (writes []projection.Write, err error) {
	defer func() {
		if r := recover(); r != nil {
			writes, err = nil, projection.Permanent(fmt.Errorf("the projection panicked: %v", r))
		}
	}()
	return p.Project(projection.Event{Change: c})
}

func poison(reason string, err error) Result {
	if promise, ok := errors.AsType[promiseError](err); ok {
		return Result{Kind: Poison, Reason: ReasonPromise, Description: promise.Error()}
	}
	return Result{Kind: Poison, Reason: reason, Description: err.Error()}
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
