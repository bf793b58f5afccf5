package plan

import (
	"context"
	"slices"
)

// Shrink leaves out of a failing plan what it fails without: faults, garbage, bursts of commits,
// streams, replicas, killed commands, and single events. fails reports whether a plan still fails
// in the same way; it may wrongly report that one does not, and then that part stays. Shrink ends
// when nothing more can be left out, or ctx ends; it returns p, or a plan of which fails has
// reported that it fails.
func Shrink(ctx context.Context, p Plan, fails func(Plan) bool) Plan {
	s := &shrinking{smallest: p, fails: func(p Plan) bool { return ctx.Err() == nil && fails(p) }}
	for before := -1; before != s.smallest.Size() && ctx.Err() == nil; {
		before = s.smallest.Size()
		s.round()
	}
	return s.smallest
}

type shrinking struct {
	smallest Plan
	fails    func(Plan) bool
}

// try adopts a plan if it fails as well.
func (s *shrinking) try(p Plan) bool {
	failed := s.fails(p)
	if failed {
		s.smallest = p
	}
	return failed
}

// round tries to leave out each kind of thing once, the large ones first.
func (s *shrinking) round() {
	fewer(s, s.smallest.Steps, func(p *Plan, steps []Step) { p.Steps = steps })
	fewer(s, s.smallest.Garbage, func(p *Plan, garbage []Garbage) { p.Garbage = garbage })
	fewer(s, s.smallest.Bursts, func(p *Plan, bursts []Burst) { p.Bursts = bursts })
	fewer(s, s.smallest.Before, func(p *Plan, before []Event) { p.Before = before })
	if s.smallest.Settings.Shared {
		s.with(func(p *Plan) {
			p.Settings.Shared, p.Bursts = false, slices.Clone(p.Bursts)
			for n, b := range p.Bursts {
				p.Bursts[n].Events = slices.Clone(b.Events)
				for i := range b.Events {
					p.Bursts[n].Events[i].Collection = ""
				}
			}
			p.Before = slices.Clone(p.Before)
			for n := range p.Before {
				p.Before[n].Collection = ""
			}
		})
	}
	for !s.smallest.Settings.Shared && s.smallest.Settings.Streams > 1 && s.with(func(p *Plan) { p.Settings.Streams-- }) {
	}
	for s.smallest.Settings.Producers > 1 && s.with(func(p *Plan) { p.Settings.Producers-- }) {
	}
	for s.smallest.Settings.Projectors > 1 && s.with(func(p *Plan) { p.Settings.Projectors-- }) {
	}
	fewer(s, s.smallest.KilledReplays, func(p *Plan, after []Duration) { p.KilledReplays = after })
	killed := func(step Step) bool { return len(step.KilledDrops) > 0 }
	if slices.ContainsFunc(s.smallest.Steps, killed) {
		s.with(func(p *Plan) {
			p.Steps = slices.Clone(p.Steps)
			for n := range p.Steps {
				p.Steps[n].KilledDrops = nil
			}
		})
	}
	fewer(s, single(s.smallest.Bursts), func(p *Plan, events []Burst) { p.Bursts = events })
	if joined := join(s.smallest.Bursts); len(joined) < len(s.smallest.Bursts) {
		s.smallest.Bursts = joined // the same plan, in fewer lines
	}
}

// with tries a change of the settings, and leaves out the faults of what no longer exists.
func (s *shrinking) with(change func(p *Plan)) bool {
	p := s.smallest
	if change(&p); p.validate() != nil {
		p.Steps = slices.DeleteFunc(slices.Clone(p.Steps), func(step Step) bool { return p.check(step) != nil })
	}
	return s.try(p)
}

// fewer leaves out of a list what the plan fails without: all of it, halves, quarters and so on,
// down to one.
func fewer[T any](s *shrinking, all []T, put func(p *Plan, list []T)) {
	for size := len(all); size > 0; size /= 2 {
		for from := 0; from < len(all); {
			rest := slices.Concat(all[:from], all[min(from+size, len(all)):])
			p := s.smallest
			put(&p, rest)
			if s.try(p) {
				all = rest
			} else {
				from += size
			}
		}
	}
}

// single turns each event into a burst, so that each can be left out.
func single(bursts []Burst) (all []Burst) {
	for _, b := range bursts {
		for _, e := range b.Events {
			all = append(all, Burst{b.At, []Event{e}})
		}
	}
	return all
}

// join returns the reverse of single.
func join(bursts []Burst) (all []Burst) {
	for _, b := range bursts {
		if n := len(all); n > 0 && all[n-1].At == b.At {
			all[n-1].Events = slices.Concat(all[n-1].Events, b.Events)
			continue
		}
		all = append(all, b)
	}
	return all
}
