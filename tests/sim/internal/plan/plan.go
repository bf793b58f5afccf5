// Package plan is the part of a simulated run that its seed determines, as data: how the services
// are configured, what is committed, and what goes wrong when. A plan can be printed as a story,
// kept in a file, and shrunk.
//
// Guaranteed: a run is determined by its plan, except for the interleaving: how the goroutines of
// the services are scheduled. Leaving a part of a plan out changes no other part.
package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluice-cdc/sluice/shared/envelope"
)

// Plan is what happens in a run. Moments count from when every stream has begun.
type Plan struct {
	// Broke is the promise that it once broke; for plans that are kept.
	Broke string `json:"broke,omitempty"`
	// Story is a remark for people.
	Story string `json:"story,omitempty"`
	// Seed is the seed of which it was drawn; 0 is a seed as well.
	Seed     uint64   `json:"seed"`
	Settings Settings `json:"settings"`
	// Heals is when all faults end that last; if a fault lasts longer, when that is over.
	Heals Duration `json:"heals"`
	// KilledReplays are the lifetimes of the `parked replay --all` commands that are killed before
	// the one that is not.
	KilledReplays []Duration `json:"killedReplays,omitempty"`
	// Before is what is committed before the streams begin, if they begin with a snapshot.
	Before []Event `json:"before,omitempty"`
	// Steps are the faults, by their moment.
	Steps []Step `json:"steps"`
	// Garbage is what strangers send, by its moment.
	Garbage []Garbage `json:"garbage"`
	// Bursts are the commits of the workload, by their moment; poison, drips and garbage have
	// commits of their own.
	Bursts []Burst `json:"bursts"`
}

// Burst is some events that are committed one after the other.
type Burst struct {
	At     Duration `json:"at"`
	Events []Event  `json:"events"`
}

// Event is one of an aggregate; its version is the next one.
type Event struct {
	// Collection is the collection that it is committed to, if several streams carry events of the
	// aggregate; otherwise empty.
	Collection      string
	Aggregate, Kind string
	// Operation is the operation with which it is committed if events are changes of documents;
	// empty: an insert.
	Operation envelope.Operation
}

// String returns the aggregate, behind its collection if there is one, the type, and the operation
// if there is one.
func (e Event) String() string {
	return strings.Trim(e.Collection+"/"+e.Aggregate+" "+e.Kind+" "+string(e.Operation), "/ ")
}

// MarshalText returns the form of [Event.String].
func (e Event) MarshalText() ([]byte, error) { return []byte(e.String()), nil }

// UnmarshalText reads the form of [Event.String].
func (e *Event) UnmarshalText(text []byte) error {
	fields := strings.Fields(string(text))
	if len(fields) < 2 || len(fields) > 3 {
		return fmt.Errorf("event %q: expected an aggregate and a type, and perhaps an operation, such as %q", text, "returns/hot-0 Kind1 update")
	}
	*e = Event{Aggregate: fields[0], Kind: fields[1]}
	if collection, aggregate, both := strings.Cut(fields[0], "/"); both {
		e.Collection, e.Aggregate = collection, aggregate
	}
	if len(fields) == 3 {
		if e.Operation = envelope.Operation(fields[2]); !e.Operation.Known() {
			return fmt.Errorf("event %q: %q is no operation", text, e.Operation)
		}
	}
	return nil
}

// Duration is written as Go writes it: 1.5s.
type Duration struct{ time.Duration }

// MarshalText returns the duration as Go writes it.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads Go's form.
func (d *Duration) UnmarshalText(text []byte) (err error) {
	d.Duration, err = time.ParseDuration(string(text))
	return err
}

// Events returns how many events the workload commits.
func (p Plan) Events() (n int) {
	for _, b := range p.Bursts {
		n += len(b.Events)
	}
	return n + len(p.Before)
}

// Has reports whether a fault of a kind happens.
func (p Plan) Has(kind Kind) bool {
	return slices.ContainsFunc(p.Steps, func(s Step) bool { return s.Kind == kind })
}

// Size returns how much there is to read in a plan, which a shrunk plan has less of.
func (p Plan) Size() int {
	s := p.Settings
	return len(p.Steps) + len(p.Garbage) + len(p.Bursts) + p.Events() + len(p.KilledReplays) + s.Producers + s.Projectors + s.Streams
}

// KilledDrops returns the lifetimes of the `parked drop` commands of an aggregate that are killed
// before the one that is not.
func (p Plan) KilledDrops(aggregate string) []Duration {
	for _, s := range p.Steps {
		if s.Kind == Poison && s.Aggregate == aggregate {
			return s.KilledDrops
		}
	}
	for _, g := range p.Garbage {
		if FullName(g.Aggregate) == aggregate {
			return g.KilledDrops
		}
	}
	return nil
}

// fewEvents is how many events a story lists one by one.
const fewEvents = 40

// Narrative returns the plan as a story.
func (p Plan) Narrative() string {
	type line struct {
		at   Duration
		text string
	}
	var lines []line
	for _, s := range p.Steps {
		lines = append(lines, line{s.At, s.String()})
	}
	for _, g := range p.Garbage {
		lines = append(lines, line{g.At, g.String()})
	}
	if p.Events() <= fewEvents {
		for _, b := range p.Bursts {
			var events []string
			for _, e := range b.Events {
				events = append(events, e.String())
			}
			lines = append(lines, line{b.At, "commit " + strings.Join(events, ", ")})
		}
	}
	slices.SortStableFunc(lines, func(a, b line) int { return cmp.Compare(a.at.Duration, b.at.Duration) })
	var story strings.Builder
	fmt.Fprintf(&story, "seed %d: %s\n", p.Seed, p.Settings)
	if n := len(p.Bursts); p.Events() > fewEvents {
		fmt.Fprintf(&story, "%d events are committed before the streams begin, and %d in %d bursts, from %.3fs to %.3fs\n",
			len(p.Before), p.Events()-len(p.Before), n, p.Bursts[0].At.Seconds(), p.Bursts[n-1].At.Seconds())
	}
	for _, l := range lines {
		fmt.Fprintf(&story, "%8.3fs  %s\n", l.at.Seconds(), l.text)
	}
	fmt.Fprintf(&story, "%8.3fs  everything heals, or when the last fault is over\n", p.Heals.Seconds())
	for _, d := range p.KilledReplays {
		fmt.Fprintf(&story, "   later  `parked replay --all` is killed after %s\n", d)
	}
	return story.String()
}
