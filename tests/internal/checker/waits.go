package checker

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-cdc/sluice/tests/internal/history"
)

// ErrWaits breaks G5: an event of a healthy aggregate waited longer than the bound, while nothing disturbed the whole.
var ErrWaits = errors.New("a healthy aggregate waits")

// Waits is how long the events of healthy aggregates may wait.
type Waits struct {
	Aggregates []string
	// Bound is the longest time from the broker's acceptance of an event to its effect in the read model.
	Bound time.Duration
	// Until is when the record ends: an event without an effect has waited until then.
	Until time.Time
}

// Span is a time in which something held up every aggregate.
type Span struct{ From, To time.Time }

// judgeWaits judges the events of healthy aggregates that the broker accepted when nothing disturbed the whole, and nothing did
// until their effect, or until the bound was over.
func judgeWaits(r Run) (found []error) {
	r.eachWait(func(a history.Acceptance, wait time.Duration) {
		if wait > r.Waits.Bound {
			found = append(found, fmt.Errorf("%w: %s of %s, accepted at %s, took %s, and at most %s is promised",
				ErrWaits, short(a.MessageID), a.Aggregate, a.At.Format("15:04:05.000"), wait.Round(time.Millisecond), r.Waits.Bound))
		}
	})
	return found
}

// LongestWait returns how many events are judged, and how long the longest of them waited.
func (r Run) LongestWait() (judged int, longest time.Duration) {
	r.eachWait(func(_ history.Acceptance, wait time.Duration) { judged, longest = judged+1, max(longest, wait) })
	return judged, longest
}

// eachWait calls f with each event that is judged.
func (r Run) eachWait(f func(a history.Acceptance, wait time.Duration)) {
	if r.Waits == nil {
		return
	}
	for _, name := range r.Waits.Aggregates {
		var effects []history.Observation
		for _, o := range r.Observed {
			if o.Aggregate == name && o.Events > 0 {
				effects = append(effects, o)
			}
		}
		seen := map[string]bool{}
		for _, a := range r.Accepted {
			if a.Aggregate != name || seen[a.MessageID] {
				continue
			}
			seen[a.MessageID] = true
			rank := int64(len(seen))
			end := r.Waits.Until
			if at := slices.IndexFunc(effects, func(o history.Observation) bool { return o.Events >= rank }); at >= 0 {
				end = effects[at].At
			}
			if !r.disturbed(a.At, minTime(end, a.At.Add(r.Waits.Bound))) {
				f(a, end.Sub(a.At))
			}
		}
	}
}

func (r Run) disturbed(from, to time.Time) bool {
	return slices.ContainsFunc(r.Disturbed, func(s Span) bool { return !s.To.Before(from) && !s.From.After(to) })
}

func minTime(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
