// Package checker judges the history of one run, simulated or of real processes, by the promises of
// the services.
//
// Package history judges the broker and the read model (G1 lost, G2 reordered, G3 doubled). This
// package adds the leader's side: every write of the checkpoint ([ErrUncovered], [ErrEpoch],
// [ErrBackwards]), whether the sender of every message had the right to send ([ErrUnfenced]), and
// events that are missing without a reason ([ErrSkipped]).
//
// It is pure. It reads the records in the order in which they were made, and neither sorts nor
// drops any.
package checker

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-cdc/sluice/tests/internal/history"
)

// The promises that only the whole pipeline shows. Each error is the violation of one.
var (
	// ErrUncovered breaks G1: a checkpoint covered an event that the broker had not acknowledged.
	ErrUncovered = errors.New("checkpoint covers an event that was not acknowledged")
	// ErrBackwards breaks G1: a checkpoint is behind an earlier one.
	ErrBackwards = errors.New("checkpoint went back")
	// ErrEpoch breaks G4: an epoch was used by two terms, or a later term has a lower one.
	ErrEpoch = errors.New("epoch did not grow")
	// ErrUnfenced breaks G4: a leader sent at a time when it could not know that it was the leader.
	ErrUnfenced = errors.New("sent without the right to")
	// ErrLease breaks G4: two replicas held the lease at once, or the checkpoint was not one value
	// that one writer changes.
	ErrLease = errors.New("lease does not exclude")
	// ErrSkipped breaks G6: an event is missing from its aggregate without a reason.
	ErrSkipped = errors.New("event skipped")
	// ErrStuck is a run that did not come to rest after all faults had ended.
	ErrStuck = errors.New("run does not come to rest")
	// ErrGaveUp is a service that ended on its own, although waiting would have been enough.
	ErrGaveUp = errors.New("service gave up")
)

// Promises returns all promises that are judged. A broken promise often breaks others: the first
// ones of the list are nearest to the cause.
func Promises() []error {
	return []error{
		ErrUncovered, ErrEpoch, ErrBackwards, ErrLease, ErrUnfenced, history.ErrMisrouted, history.ErrUnguarded, history.ErrUncommitted,
		history.ErrDoubled, history.ErrReordered, ErrPoison, ErrSkipped, history.ErrLost, ErrView, ErrGaveUp, ErrWaits, ErrStuck,
	}
}

// Promise returns the promise that a violation breaks; nil if it breaks none.
func Promise(violation error) error {
	for _, promise := range Promises() {
		if errors.Is(violation, promise) {
			return promise
		}
	}
	return nil
}

// Write is one successful write of a checkpoint.
type Write struct {
	// Stream is the stream that the checkpoint belongs to.
	Stream   string
	Epoch    int64
	Leader   string
	LeaseID  string
	Position string
	// Generation is how many times the operator has rewound the checkpoint.
	Generation int64
	Published  int64
	// Began is when the writer sent the request.
	Began time.Time
	// Answered reports whether the writer received the answer.
	Answered bool
	// Accepted is how many messages the broker had accepted when the write was sent.
	Accepted int
	// Parked is how many messages had been parked when the write was sent.
	Parked int
}

// Ended is a service that ended on its own.
type Ended struct {
	Instance string
	Err      error
}

// Run is everything recorded of one run.
type Run struct {
	history.History
	Writes []Write
	// Losses are the moments at which MongoDB lost all history.
	Losses []time.Time
	// FenceAfter is how long the leader may send after a successful write.
	FenceAfter time.Duration
	// Late reports whether a message that was accepted at this moment had been delayed by the
	// network since its leader sent it.
	Late func(leader string, at time.Time) bool
	// Lease is the verdict of package leasecheck about the checkpoint's blob; nil means that one
	// blob explains the history.
	Lease error
	// Expected is the fold of the committed events, Actual the final content of the read model.
	Expected, Actual *history.Model
	// ExpectedTotals and ActualTotals are the documents that many aggregates feed; nil if the
	// projection has none.
	ExpectedTotals, ActualTotals *history.Model
	// Versions is what is known of a second version of the projection; nil without one.
	Versions *Versions
	// Sick are the aggregates that must be parked. Aside holds what was set aside of them, and of
	// others, which is an error.
	Sick  []Sick
	Aside []Aside
	// Garbage holds the messages that strangers sent, in the order in which the broker accepted
	// them.
	Garbage []Garbage
	// Left is what is still set aside at the end, after all poison was fixed and replayed.
	Left []Aside
	// ObservedBefore is how many changes of the read model had been observed when the projection
	// was fixed.
	ObservedBefore int
	// ExpectedBefore and ActualBefore are the read model at that moment; nil if nothing was poison.
	ExpectedBefore, ActualBefore *history.Model
	// Given are the committed events that were abandoned before they reached the broker.
	Given []Given
	// Parked are the messages that producers have parked, in the order in which the storage
	// accepted them.
	Parked []Parked
	// UsedUp is what is known of a run in which the broker dead-letters messages on its own;
	// otherwise nil.
	UsedUp *UsedUp
	// Waits is how long healthy aggregates may wait; nil if that is not judged. Disturbed is when
	// every aggregate may have been held up.
	Waits     *Waits
	Disturbed []Span
	// Replayed reports whether what was set aside has been replayed.
	Replayed bool
	Ended    []Ended
	// Unrest describes what had not come to rest; it is empty if everything had.
	Unrest string
}

// Judge returns a violation for every broken promise; nil means that the run keeps all of them. A
// run that did not come to rest is judged for that and for what it did before.
func Judge(r Run) []error {
	var found []error
	if r.Unrest != "" {
		found = append(found, fmt.Errorf("%w: %s", ErrStuck, r.Unrest))
	}
	for _, e := range r.Ended {
		found = append(found, fmt.Errorf("%w: %s: %w", ErrGaveUp, e.Instance, e.Err))
	}
	found = append(found, judgeHistory(r)...)
	for _, stream := range r.streams() {
		found = append(found, r.judgeWrites(stream)...)
	}
	found = append(found, judgeRewinds(r)...)
	found = append(found, judgeParked(r)...)
	found = append(found, judgeFence(r)...)
	if r.Lease != nil {
		found = append(found, fmt.Errorf("%w: %w", ErrLease, r.Lease))
	}
	if r.UsedUp != nil {
		found = append(found, judgeUsedUp(r)...)
	} else {
		found = append(found, judgePoison(r)...)
	}
	found = append(found, judgeGarbage(r)...)
	found = append(found, judgeWaits(r)...)
	found = append(found, judgeModel("read model beside the poison", r.ExpectedBefore, r.ActualBefore)...)
	found = append(found, judgeModel("read model", r.Expected, r.Actual)...)
	found = append(found, judgeModel("totals", r.ExpectedTotals, r.ActualTotals)...)
	found = append(found, judgeVersions(r.Versions)...)
	return found
}

// judgeModel compares a model at the end of the run.
func judgeModel(name string, expected, actual *history.Model) (found []error) {
	if expected == nil || actual == nil {
		return nil
	}
	c := history.Compare(expected, actual)
	for _, difference := range c.Differences {
		promise := history.ErrReordered // the right events, folded in a wrong order
		switch {
		case c.Doubled > 0:
			promise = history.ErrDoubled
		case c.Lost > 0:
			promise = history.ErrLost
		}
		found = append(found, fmt.Errorf("%w: %s in the end: %s", promise, name, difference))
	}
	return found
}

// streams returns the streams whose checkpoints were written, in the order of their first writes.
func (r Run) streams() (names []string) {
	for _, w := range r.Writes {
		if !slices.Contains(names, w.Stream) {
			names = append(names, w.Stream)
		}
	}
	return names
}

// judgeWrites follows the checkpoint of a stream through its writes.
func (r Run) judgeWrites(stream string) []error {
	var found []error
	accepted, late := r.Accepted, r.replaced(stream)
	// firstAt is the index at which each message was accepted first.
	firstAt := make(map[string]int, len(accepted))
	for i, a := range accepted {
		if _, seen := firstAt[a.MessageID]; !seen {
			firstAt[a.MessageID] = i
		}
	}
	// lowest[i] is the lowest position among the messages that were first accepted at i or later,
	// without those that a row replaced. A checkpoint that was written before must not reach it.
	lowest := make([]string, len(accepted)+1)
	for i := len(accepted) - 1; i >= 0; i-- {
		lowest[i] = lowest[i+1]
		if _, row := late[i]; row {
			continue
		}
		if a := accepted[i]; a.Stream == stream && firstAt[a.MessageID] == i && (lowest[i] == "" || a.Position < lowest[i]) {
			lowest[i] = a.Position
		}
	}
	terms := map[int64]string{}
	last := Write{Epoch: -1} // the record of a new stream is created with epoch 0, before any replica leads
	for _, w := range r.Writes {
		if w.Stream != stream {
			continue
		}
		low := lowest[w.Accepted]
		for i, lost := range late {
			a := accepted[i]
			if i >= w.Accepted && (a.Epoch >= w.Epoch || !w.Began.After(lost)) && (low == "" || a.Position < low) {
				low = a.Position
			}
		}
		if low != "" && w.Position >= low {
			found = append(found, fmt.Errorf("%w: %s wrote position %s in epoch %d before the broker took %s",
				ErrUncovered, w.Leader, w.Position, w.Epoch, low))
		}
		if w.Position < last.Position && w.Generation <= last.Generation {
			found = append(found, fmt.Errorf("%w: %s wrote position %s in epoch %d after %s in epoch %d",
				ErrBackwards, w.Leader, w.Position, w.Epoch, last.Position, last.Epoch))
		}
		switch term, known := terms[w.Epoch]; {
		case !known && w.Epoch <= last.Epoch:
			found = append(found, fmt.Errorf("%w: %s took epoch %d after %d", ErrEpoch, w.Leader, w.Epoch, last.Epoch))
		case known && term != w.LeaseID:
			found = append(found, fmt.Errorf("%w: %s wrote in epoch %d, which was another term's", ErrEpoch, w.Leader, w.Epoch))
		case known && w.Epoch < last.Epoch:
			found = append(found, fmt.Errorf("%w: %s still wrote in epoch %d after epoch %d", ErrEpoch, w.Leader, w.Epoch, last.Epoch))
		}
		terms[w.Epoch] = w.LeaseID
		last = w
	}
	return found
}

// replaced returns the messages of a stream that the broker accepted for the first time after the
// history of their event was lost, and whose event it accepted as a row of a snapshot later, by
// their index, with the moment of that loss. Such a message was delayed since before the loss, when
// its leader sent it without an acknowledgement. A later leader has no event to send again: its
// checkpoint continues behind the loss, and the row replaces the event.
func (r Run) replaced(stream string) map[int]time.Time {
	if len(r.Losses) == 0 {
		return nil
	}
	type event struct {
		aggregate string
		version   int64
	}
	committed, late, seen := map[event]time.Time{}, map[int]time.Time{}, map[string]int{}
	for _, c := range r.Committed {
		if c.Stream == "" || c.Stream == stream {
			committed[event{c.Aggregate, c.Version}] = c.At
		}
	}
	for i, a := range r.Accepted {
		if a.Stream != stream {
			continue
		}
		first, again := seen[a.MessageID]
		if !again {
			seen[a.MessageID] = i
			continue
		}
		at, known := committed[event{a.Aggregate, a.Version}]
		if !a.Row || r.Accepted[first].Row || !known {
			continue
		}
		for _, lost := range r.Losses {
			if at.Before(lost) && r.Accepted[first].At.After(lost) {
				late[first] = lost
				break
			}
		}
	}
	return late
}

func judgeRewinds(r Run) []error {
	if r.Unrest != "" {
		return nil
	}
	return r.NotAgain()
}

// NotAgain returns a violation for each message that was published behind a position to which the
// operator has rewound the checkpoint, and that the broker has not accepted again since.
func (r Run) NotAgain() (found []error) {
	generations := map[string]int64{}
	for _, w := range r.Writes {
		back := w.Generation > generations[w.Stream]
		if generations[w.Stream] = w.Generation; !back {
			continue
		}
		again := map[string]bool{}
		for _, a := range r.Accepted[w.Accepted:] {
			again[a.MessageID] = again[a.MessageID] || !a.Duplicate
		}
		for _, a := range r.Accepted[:w.Accepted] {
			if a.Stream == w.Stream && a.Position > w.Position && !again[a.MessageID] {
				again[a.MessageID] = true // report it once
				found = append(found, fmt.Errorf("%w: version %d of %s at %s was not published again when the checkpoint was taken back to %s in epoch %d",
					ErrSkipped, a.Version, a.Aggregate, a.Position, w.Position, w.Epoch))
			}
		}
	}
	return found
}

// judgeFence checks every message against the writes that gave its sender the right to send it.
func judgeFence(r Run) []error {
	type term struct {
		stream string
		epoch  int64
	}
	terms := map[term][]Write{}
	for _, w := range r.Writes {
		t := term{w.Stream, w.Epoch}
		terms[t] = append(terms[t], w)
	}
	var found []error
	for _, a := range r.Accepted {
		writes := terms[term{a.Stream, a.Epoch}]
		if len(writes) == 0 {
			found = append(found, fmt.Errorf("%w: a message of %s of epoch %d, which had no leader", ErrUnfenced, a.Stream, a.Epoch))
			continue
		}
		allowed := func(w Write) bool { return w.Answered && !a.At.Before(w.Began) && a.At.Sub(w.Began) <= r.FenceAfter }
		if (r.Late == nil || !r.Late(writes[0].Leader, a.At)) && !slices.ContainsFunc(writes, allowed) {
			found = append(found, fmt.Errorf("%w: %s sent %s in epoch %d at %s, without a write in the %s before",
				ErrUnfenced, writes[0].Leader, short(a.MessageID), a.Epoch, a.At.Format("05.000"), r.FenceAfter))
		}
	}
	return found
}
