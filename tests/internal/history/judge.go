package history

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
)

// The promises of ARCHITECTURE §2. Each error is the violation of one.
var (
	// ErrLost breaks G1: an event was committed and never arrived.
	ErrLost = errors.New("event lost")
	// ErrDoubled breaks G3: an event took effect more than once.
	ErrDoubled = errors.New("effect doubled")
	// ErrReordered breaks G2: events of one aggregate arrived in another order than they were
	// committed in.
	ErrReordered = errors.New("events reordered")
	// ErrMisrouted breaks the basis of G2: events of one aggregate in two sessions have no order.
	ErrMisrouted = errors.New("message in another session than its aggregate's")
	// ErrUncommitted is an effect of an event that was never committed.
	ErrUncommitted = errors.New("effect without a committed event")
	// ErrUnguarded is an effect whose document has no position: a repeat could be neither prevented
	// (G3, G4) nor detected.
	ErrUnguarded = errors.New("effect without a position guard")
)

// Violation is one broken promise for one aggregate. errors.Is finds its sentinel.
type Violation struct {
	Promise   error // one of the sentinels
	Aggregate string
	Detail    string
}

func (v Violation) Error() string {
	return fmt.Sprintf("%s: aggregate %s: %s", v.Promise, v.Aggregate, v.Detail)
}

func (v Violation) Unwrap() error { return v.Promise }

// Count returns how many violations break a promise.
func Count(violations []Violation, promise error) int {
	n := 0
	for _, v := range violations {
		if errors.Is(v, promise) {
			n++
		}
	}
	return n
}

// Judge returns every broken promise: those seen at the broker first, then those seen in the read
// model, each in the order in which they happened. Lost events come last, in commit order. A nil
// result means that the history keeps every promise.
func Judge(h History) []Violation {
	commits := newCommitted(h.Committed)
	var found []Violation
	if h.Accepted != nil {
		found = append(found, judgeBroker(commits, h)...)
	}
	if h.Observed != nil {
		found = append(found, judgeView(commits, h.Observed)...)
	}
	return found
}

// line identifies a sequence of events that has an order: those of an aggregate, or those of one
// stream if several carry events of the aggregate.
type line struct{ stream, aggregate string }

func (l line) String() string { return strings.TrimPrefix(l.stream+" "+l.aggregate, " ") }

// committed is the commit order, by line.
type committed struct {
	order      []line // by their first commit
	versions   map[line][]int64
	aggregates []string // likewise
	events     map[string]int64
}

func newCommitted(commits []Commit) committed {
	c := committed{versions: map[line][]int64{}, events: map[string]int64{}}
	for _, commit := range commits {
		l := line{commit.Stream, commit.Aggregate}
		if _, known := c.versions[l]; !known {
			c.order = append(c.order, l)
		}
		c.versions[l] = append(c.versions[l], cmp.Or(commit.MessageVersion, commit.Version))
		if c.events[commit.Aggregate]++; c.events[commit.Aggregate] == 1 {
			c.aggregates = append(c.aggregates, commit.Aggregate)
		}
	}
	return c
}

// of returns the line of a message: that of its stream, or that of its aggregate if only one stream
// carries it.
func (c committed) of(a Acceptance) (l line, known bool) {
	for _, l := range []line{{a.Stream, a.Aggregate}, {"", a.Aggregate}} {
		if _, known := c.versions[l]; known {
			return l, true
		}
	}
	return line{}, false
}

// judgeBroker checks the first acceptance of every message, aggregate by aggregate, even if several
// share a session. A repeat changes nothing unless it goes to another session.
func judgeBroker(c committed, h History) []Violation {
	var found []Violation
	taken := map[line]*published{}
	seen := make(map[string]struct{}, len(h.Accepted))
	for _, a := range h.Accepted {
		l, known := c.of(a)
		if !known {
			found = append(found, Violation{
				ErrUncommitted, a.Aggregate,
				fmt.Sprintf("message %s in session %s is of an aggregate that was never committed in %q", a.MessageID, a.Session, a.Stream),
			})
			continue
		}
		if want := h.SessionKey.Session(a.Aggregate); a.Session != want {
			found = append(found, Violation{
				ErrMisrouted, a.Aggregate, fmt.Sprintf("message %s went to session %s, not %s", a.MessageID, a.Session, want),
			})
		}
		if _, repeat := seen[a.MessageID]; repeat {
			continue
		}
		seen[a.MessageID] = struct{}{}
		p := taken[l]
		if p == nil {
			p = &published{}
			taken[l] = p
		}
		found = append(found, p.take(a, c.versions[l])...)
	}
	for _, l := range c.order {
		got := 0
		if p := taken[l]; p != nil {
			got = p.firsts
		}
		if want := len(c.versions[l]); got < want {
			found = append(found, Violation{
				ErrLost, l.aggregate, fmt.Sprintf("the broker took %d of %d events of %s", got, want, l),
			})
		}
	}
	return found
}

// published is how much of one line the broker has accepted.
type published struct {
	firsts   int // messages that are not repeats
	position string
}

// take compares the next message of a line with the commits of that line.
func (p *published) take(a Acceptance, versions []int64) (found []Violation) {
	p.firsts++
	if a.Position <= p.position {
		found = append(found, Violation{
			ErrReordered, a.Aggregate,
			fmt.Sprintf("the broker took position %s after %s (epoch %d)", a.Position, p.position, a.Epoch),
		})
	}
	p.position = max(p.position, a.Position)
	switch {
	case p.firsts > len(versions):
		found = append(found, Violation{
			ErrUncommitted, a.Aggregate,
			fmt.Sprintf("the broker took %d different messages for %d committed events", p.firsts, len(versions)),
		})
	case a.Version != 0 && versions[p.firsts-1] != 0 && a.Version != versions[p.firsts-1]:
		found = append(found, Violation{
			ErrReordered, a.Aggregate,
			fmt.Sprintf("message %d carried version %d where version %d was committed", p.firsts, a.Version, versions[p.firsts-1]),
		})
	}
	return found
}

// judgeView follows every document of the read model through its changes.
func judgeView(c committed, observed []Observation) []Violation {
	type document struct {
		events    int64
		positions map[string]string // by stream
	}
	var found []Violation
	documents := map[string]*document{}
	for _, o := range observed {
		if c.events[o.Aggregate] == 0 {
			found = append(found, Violation{ErrUncommitted, o.Aggregate, "the read model holds an aggregate that was never committed"})
			continue
		}
		d := documents[o.Aggregate]
		if d == nil {
			d = &document{positions: map[string]string{}}
			documents[o.Aggregate] = d
		}
		position := d.positions[o.Stream]
		switch {
		case o.Position != "" && o.Position < position:
			found = append(found, Violation{
				ErrReordered, o.Aggregate,
				fmt.Sprintf("the read model went back from position %s to %s", line{o.Stream, position}, o.Position),
			})
		case o.Events >= 0 && o.Events < d.events:
			found = append(found, Violation{
				ErrReordered, o.Aggregate,
				fmt.Sprintf("the read model went back from %d events to %d", d.events, o.Events),
			})
		case o.Events > d.events && len(d.positions) == 0 && o.Position == "":
			found = append(found, Violation{ErrUnguarded, o.Aggregate, fmt.Sprintf("the read model went to %d events without a position", o.Events)})
		case o.Events > d.events && (o.Position == "" || o.Position == position):
			found = append(found, Violation{
				ErrDoubled, o.Aggregate,
				fmt.Sprintf("the read model went from %d events to %d without leaving position %s", d.events, o.Events, line{o.Stream, position}),
			})
		}
		if o.Events >= 0 {
			d.events = o.Events
		}
		if o.Position != "" {
			d.positions[o.Stream] = o.Position
		}
	}
	for _, aggregate := range c.aggregates {
		want, got := c.events[aggregate], int64(0)
		if d := documents[aggregate]; d != nil {
			got = d.events
		}
		switch {
		case got < want:
			found = append(found, Violation{ErrLost, aggregate, fmt.Sprintf("the read model holds %d of %d events", got, want)})
		case got > want:
			found = append(found, Violation{ErrDoubled, aggregate, fmt.Sprintf("the read model holds %d events of %d", got, want)})
		}
	}
	return found
}
