package run

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluice-cdc/sluice/shared/retry"
	"github.com/sluice-cdc/sluice/tests/internal/child"
)

const (
	// stuckAfter is how long a run may stand still before it is given up.
	stuckAfter = 30 * time.Second
	// settled is how long a run must stand still after the broker is empty until every effect has
	// been observed.
	settled = time.Second
	// unreadable is how many events a projection may dead-letter before it has applied any: then it
	// cannot read these events.
	unreadable = 20
	// remindAfter is how long a run may stand still before it shows what is missing, and
	// remindEvery is how often.
	remindAfter = 3 * time.Second
	remindEvery = 5 * time.Second
)

// A run that ends with one of these is given up; its outcome so far is still checked and reported.
var (
	errStuck    = errors.New("nothing moved")
	errHopeless = errors.New("what is missing will not come")
	// errOnTheWay and errNotCompared are a run's whose time after Ctrl-C is over.
	errOnTheWay    = errors.New("changes were still on their way when the time to compare them was over")
	errNotCompared = errors.New("the documents could not be compared")
)

// givenUp reports whether the outcome so far is still worth a check.
func givenUp(err error) bool {
	ends := []error{errStuck, errHopeless, errNoFailover, errOnTheWay, errNotCompared}
	return slices.ContainsFunc(ends, func(end error) bool { return errors.Is(err, end) })
}

// reminder decides when to remind the user of what is missing. The zero value is ready to use; it
// belongs to one goroutine.
type reminder struct{ next time.Time }

// due reports whether it is time, after the run has stood still for that long.
func (m *reminder) due(quiet time.Duration) bool {
	now := time.Now()
	if quiet < remindAfter || now.Before(m.next) {
		return false
	}
	m.next = now.Add(remindEvery)
	return true
}

// until waits for a condition that no event announces.
func until(ctx context.Context, so func() bool) error {
	for !so() {
		if err := retry.Sleep(ctx, grain); err != nil {
			return err
		}
	}
	return nil
}

// closed reports whether a channel is closed.
func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func (r *runner) allSeen() bool {
	counts := r.rec.Counts()
	return counts.Visible == counts.Committed
}

// drained reports whether the broker is empty, so that no repeat can follow.
func (r *runner) drained() bool {
	return r.stack == nil || r.stack.ServiceBus.Stats(r.places.route.Out()).Active == 0
}

// hopeless returns why what is missing can never come, which is that it is dead-lettered. It
// returns nil while it may come, or if the broker is not observed.
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

// unmoved returns how long the run has stood still.
func (r *runner) unmoved() time.Duration {
	if r.changing.Load() > 0 {
		return 0
	}
	last := r.rec.Counts().LastMove
	if event := time.Unix(0, r.moved.Load()); event.After(last) {
		last = event
	}
	return time.Since(last)
}

// missing describes what the run still waits for.
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
		part("not all harm of --chaos is over")
	}
	if silent := absent(r.slots()); silent != "" {
		part("%s", silent)
	}
	return strings.Join(parts, "; ")
}

// absent names those services that do not answer; it is empty if all do.
func absent(services []*child.Slot) string {
	var names []string
	for _, s := range services {
		if _, fresh := s.Status(); !fresh {
			names = append(names, s.Name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return "no answer from " + strings.Join(names, ", ")
}

// deadLetters describes the dead letters with their reasons, first those that park their aggregate.
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

// firstLetter describes the first dead letter, to be appended to an error.
func (r *runner) firstLetter() string {
	if letters := r.deadLetters(); len(letters) > 0 {
		return "; the first: " + letters[0]
	}
	return ""
}

// awaited describes what a run waits for before it begins.
func (r *runner) awaited() string {
	var parts []string
	if silent := absent(r.slots()); silent != "" {
		parts = append(parts, silent)
	}
	if _, _, ok := r.leader(); !ok {
		parts = append(parts, "no producer leads with an open change stream")
	}
	if !r.isWatched() {
		parts = append(parts, "our own look at the read model does not open")
	}
	return strings.Join(parts, "; ")
}
