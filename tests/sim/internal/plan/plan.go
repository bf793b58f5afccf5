// Package plan is what a seed decides of a simulated run, as data: how the services are configured, what is committed, and
// what goes wrong when. A plan can be told as a story, kept in a file, and shrunk.
//
// Guaranteed: a plan is all that a run is given to decide with. Leaving a part of it out changes no other part. What it does
// not decide is the interleaving: how the goroutines of the services are scheduled.
package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluice-cdc/sluice/shared/envelope"
)

// Plan is what is to happen in a run. Moments count from when every stream has begun.
type Plan struct {
	// Broke is the promise that it broke once; of plans that are kept.
	Broke string `json:"broke,omitempty"`
	// Story is what is worth knowing of it, for people.
	Story string `json:"story,omitempty"`
	// Seed is that of which it was drawn; 0 is a seed too.
	Seed     uint64   `json:"seed"`
	Settings Settings `json:"settings"`
	// Heals is when everything heals that is still wrong; where a fault lasts longer, when that is over.
	Heals Duration `json:"heals"`
	// KilledReplays are how long each `parked replay --all` lives that is killed before the one that is not.
	KilledReplays []Duration `json:"killedReplays,omitempty"`
	// Steps are the faults, by their moment.
	Steps []Step `json:"steps"`
	// Garbage is what strangers send, by its moment.
	Garbage []Garbage `json:"garbage"`
	// Bursts are the commits of the workload, by their moment; poison, drips and garbage have commits of their own.
	Bursts []Burst `json:"bursts"`
}

// Burst is some events that are committed one after the other.
type Burst struct {
	At     Duration `json:"at"`
	Events []Event  `json:"events"`
}

// Event is one of an aggregate; its version is the next one.
type Event struct {
	// Collection is the one that it is committed to, where several streams carry events of the aggregate; else empty.
	Collection      string
	Aggregate, Kind string
	// Operation is how it is committed where events are changes of documents; empty: an insert.
	Operation envelope.Operation
}

// String is the aggregate, behind its collection where there is one, the type, and the operation where there is one.
func (e Event) String() string {
	return strings.Trim(e.Collection+"/"+e.Aggregate+" "+e.Kind+" "+string(e.Operation), "/ ")
}

// MarshalText gives the form of [Event.String].
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

// MarshalText gives Go's form.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads Go's form.
func (d *Duration) UnmarshalText(text []byte) (err error) {
	d.Duration, err = time.ParseDuration(string(text))
	return err
}

// Events is how many the workload commits.
func (p Plan) Events() (n int) {
	for _, b := range p.Bursts {
		n += len(b.Events)
	}
	return n
}

// Size is how much there is to read in a plan: what a shrunk plan has less of.
func (p Plan) Size() int {
	s := p.Settings
	return len(p.Steps) + len(p.Garbage) + len(p.Bursts) + p.Events() + len(p.KilledReplays) + s.Producers + s.Projectors + s.Streams
}

// KilledDrops are how long each `parked drop` of an aggregate lives that is killed before the one that is not.
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

// fewEvents is how many events a story tells one by one.
const fewEvents = 40

// Tell is the plan as a story.
func (p Plan) Tell() string {
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
		fmt.Fprintf(&story, "%d events are committed in %d bursts, from %.3fs to %.3fs\n", p.Events(), n, p.Bursts[0].At.Seconds(), p.Bursts[n-1].At.Seconds())
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
