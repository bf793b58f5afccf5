package run

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

const (
	// stuckAfter is how long nothing may move before a run is given up.
	stuckAfter = 30 * time.Second
	// settled is how long nothing may move once the broker holds nothing any more: what was applied has been seen by then.
	settled = time.Second
	// unreadable is how many events a projection may set aside before it has applied any: then they are not what it is for.
	unreadable = 20
	// remindAfter is how long nothing may move before people are told what is waited for, and remindEvery how often.
	remindAfter = 3 * time.Second
	remindEvery = 5 * time.Second
)

// A run that ends with one of these is given up; what there is of it is still checked and reported.
var (
	errStuck    = errors.New("nothing moved")
	errHopeless = errors.New("what is missing will not come")
	// errOnTheWay and errNotCompared are a run's whose time after Ctrl-C is over.
	errOnTheWay    = errors.New("changes were still on their way when the time to compare them was over")
	errNotCompared = errors.New("the documents could not be compared")
)

// givenUp says that what there is of the run is still worth a check.
func givenUp(err error) bool {
	for _, end := range []error{errStuck, errHopeless, errNoFailover, errOnTheWay, errNotCompared} {
		if errors.Is(err, end) {
			return true
		}
	}
	return false
}

// reminder says when people are to be told what is waited for. The zero value is ready to use; it belongs to one goroutine.
type reminder struct{ next time.Time }

// due says whether it is time, when nothing has moved for so long.
func (m *reminder) due(quiet time.Duration) bool {
	now := time.Now()
	if quiet < remindAfter || now.Before(m.next) {
		return false
	}
	m.next = now.Add(remindEvery)
	return true
}

func (r *runner) allSeen() bool {
	counts := r.rec.Counts()
	return counts.Visible == counts.Committed
}

// drained says that the broker holds nothing any more: no repeat can come behind.
func (r *runner) drained() bool {
	return r.stack == nil || r.stack.ServiceBus.Stats(r.places.route.Out()).Active == 0
}

// hopeless says why what is missing can never come: it is dead-lettered. nil while it may come, or where nobody sees the broker.
func (r *runner) hopeless(stopping bool) error {
	if r.stack == nil {
		return nil
	}
	counts, stats := r.rec.Counts(), r.stack.ServiceBus.Stats(r.places.route.Out())
	aside := int64(stats.DeadLettered)
	over := stopping && r.loaded.Load() && r.failovers.done() && r.healthy() && r.unmoved() > settled
	switch {
	case counts.Visible == 0 && aside >= unreadable:
		return fmt.Errorf("%w: the projection %s has applied none of the events and refused %d, so they are not what it is for%s",
			errHopeless, r.options.Projection, aside, r.firstLetter())
	case over && aside > 0 && stats.Active == 0 && counts.Published >= counts.Committed && !r.allSeen():
		return fmt.Errorf("%w: the broker holds nothing any more, and %d of %d events are dead-lettered%s", errHopeless, aside, counts.Committed, r.firstLetter())
	}
	return nil
}

// unmoved is how long nothing has happened.
func (r *runner) unmoved() time.Duration {
	last := r.rec.Counts().LastMove
	if event := time.Unix(0, r.moved.Load()); event.After(last) {
		last = event
	}
	return time.Since(last)
}

// missing says what the run still waits for.
func (r *runner) missing() string {
	counts := r.rec.Counts()
	var parts []string
	part := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	if !r.loaded.Load() {
		part("not all events are inserted")
	}
	if n := counts.Committed - counts.Published; n > 0 && r.stack != nil {
		part("%d of %d events are not published", n, counts.Committed)
	}
	if n := counts.Committed - counts.Visible; n > 0 {
		part("%d of %d are not to be seen in the read model", n, counts.Committed)
	}
	if r.stack != nil {
		stats := r.stack.ServiceBus.Stats(r.places.route.Out())
		part("the broker holds %d messages, and %d dead-lettered", stats.Active, stats.DeadLettered)
	}
	if !r.failovers.done() {
		part("not all harm of --chaos is done and mended")
	}
	if absent := r.absent(); absent != "" {
		part("%s", absent)
	}
	return strings.Join(parts, "; ")
}

// absent says which services do not answer; empty: all do.
func (r *runner) absent() string {
	var names []string
	for _, s := range r.slots() {
		if _, fresh := s.Status(); !fresh {
			names = append(names, s.Name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return "no answer from " + strings.Join(names, ", ")
}

// deadLetters are the messages that are set aside, with their reasons: those first that park their aggregate.
func (r *runner) deadLetters() (lines []string) {
	const looked, behind = 1000, "AggregateParked" // the reason of a message behind the one that parked
	followers := 0
	for _, m := range r.stack.ServiceBus.PeekDeadLetters(r.places.route.Out(), looked) {
		if m.Reason == behind {
			followers++
			continue
		}
		lines = append(lines, fmt.Sprintf("session %s, message %s: %s: %s", m.SessionID, m.MessageID, m.Reason, m.Description))
	}
	if followers > 0 {
		lines = append(lines, fmt.Sprintf("and %d behind these, because their aggregates are parked", followers))
	}
	return lines
}

// firstLetter is the first dead letter in words, behind what tells of it.
func (r *runner) firstLetter() string {
	if letters := r.deadLetters(); len(letters) > 0 {
		return "; the first: " + letters[0]
	}
	return ""
}

// awaited says what a run waits for before it begins.
func (r *runner) awaited() string {
	var parts []string
	if absent := r.absent(); absent != "" {
		parts = append(parts, absent)
	}
	if _, _, ok := r.leader(); !ok {
		parts = append(parts, "no producer leads with an open change stream")
	}
	if !r.isWatched() {
		parts = append(parts, "our own look at the read model does not open")
	}
	return strings.Join(parts, "; ")
}
