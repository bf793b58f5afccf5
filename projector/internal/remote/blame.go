package remote

import (
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/sluice-cdc/sluice/projector/projection"
)

const (
	// suspectAfter is how many deaths of the program an event may be in flight at before it is
	// tried with no other event in flight.
	suspectAfter = 2
	// condemnedAfter is how many deaths it may be tried at: the program may have died of something
	// else once.
	condemnedAfter = 2
	// invalidAfter is how many calls with the event alone must fail by their answer: one may have
	// been damaged by something else.
	invalidAfter = 2
	// forgetAfter is how long an event is remembered that is not asked for any more: another
	// replica has it, or it was decided.
	forgetAfter = 30 * time.Minute
)

// blame decides which event a failed call is due to. It performs no I/O and reads no clock.
//
// Guaranteed: an event is refused for a failure only if the call failed with no other event, and
// another event has passed since the first failure of this one.
type blame struct {
	troubles map[string]*trouble // by message id
	// passed and before are when the last event passed, and the last one with another id.
	passed   time.Time
	passedID string
	before   time.Time
	pruned   time.Time
}

// trouble is what is known of an event that was in a call that failed.
type trouble struct {
	first   time.Time // when the first such call began
	seen    time.Time
	single  int // calls that failed with no other event in them
	invalid int // those of them that failed by their answer
	deaths  int // of the program, while the event was in flight beside others
	alone   int // of the program, while no other event was in flight
}

// suspect reports whether an event is to be tried with no other one in flight.
func (b *blame) suspect(id string) bool {
	t := b.troubles[id]
	return t != nil && t.deaths >= suspectAfter
}

// single reports whether an event must be called for alone.
func (b *blame) single(id string) bool {
	t := b.troubles[id]
	return t != nil && t.single > 0
}

// pass records that the program handled events, together with others or not.
func (b *blame) pass(now time.Time, ids ...string) {
	for _, id := range ids {
		if id != b.passedID {
			b.before = b.passed
		}
		b.passed, b.passedID = now, id
		delete(b.troubles, id)
	}
}

// othersPassed reports whether an event with another id has passed after t.
func (b *blame) othersPassed(id string, t time.Time) bool {
	last := b.passed
	if id == b.passedID {
		last = b.before
	}
	return last.After(t)
}

// fail records a failed call that began at a time, with these events; exclusive: no other event was
// in flight.
func (b *blame) fail(now, began time.Time, failed *callError, exclusive bool, ids ...string) {
	if now.Sub(b.pruned) >= time.Minute {
		b.pruned = now
		maps.DeleteFunc(b.troubles, func(_ string, t *trouble) bool { return now.Sub(t.seen) > forgetAfter })
	}
	for _, id := range ids {
		t := b.troubles[id]
		if t == nil {
			t = &trouble{first: began}
			b.troubles[id] = t
		}
		t.seen = now
		if len(ids) == 1 {
			t.single++
			if failed.kind == invalid {
				t.invalid++
			}
		}
		switch {
		case failed.kind != lost:
		case exclusive:
			t.alone++
		default:
			t.deaths++
		}
	}
}

// judge returns the error of an event whose call failed with no other event in it: a permanent one
// if the event is to blame.
func (b *blame) judge(id string, failed *callError) error {
	t := b.troubles[id]
	others := t != nil && b.othersPassed(id, t.first)
	switch {
	case failed.kind == invalid && others && t.invalid >= invalidAfter:
		return refusal{reasonInvalid, failed}
	case failed.kind == lost && others && t.alone >= condemnedAfter:
		return refusal{reasonEnded, fmt.Errorf("the projection's program ended %d times while it had this event, and no other one: it may recurse "+
			"without end, or take more memory than there is. Correct the program before a replay, which ends in the same way otherwise", t.alone)}
	}
	return failed
}

// Reasons, as package apply has them.
const (
	reasonInvalid = "ProjectionInvalid"
	reasonEnded   = "ProcessEnded"
)

// refusal is a failure for which an event's aggregate is parked.
type refusal struct {
	reason string
	err    error
}

func (r refusal) Error() string        { return r.err.Error() }
func (r refusal) Unwrap() error        { return r.err }
func (r refusal) Is(target error) bool { return target == projection.ErrPermanent }

// ParkReason returns the reason with which the aggregate is parked.
func (r refusal) ParkReason() string { return r.reason }

// errNotAwaited ends a call whose answer is not awaited any longer.
var errNotAwaited = errors.New("the answer is not awaited any longer")
