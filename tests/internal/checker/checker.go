// Package checker judges the history of one run, simulated or of real processes, by the promises of the services.
//
// To what package history judges of the broker and of the read model (G1 lost, G2 reordered, G3 doubled) it adds the
// leader's side: every write of the checkpoint ([ErrUncovered], [ErrEpoch], [ErrBackwards]), every message against its
// sender's right to send ([ErrUnfenced]), and what nobody may pass over in silence ([ErrSkipped]).
//
// It is pure. It walks the records as they came, sorts nothing and drops nothing.
package checker

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-cdc/sluice/tests/internal/history"
)

// The promises that only the whole pipeline shows, as what it is called when one is broken.
var (
	// ErrUncovered breaks G1: a checkpoint covered an event that the broker had not acknowledged.
	ErrUncovered = errors.New("checkpoint covers an event that was not acknowledged")
	// ErrBackwards breaks G1's record: a checkpoint went back behind an earlier one.
	ErrBackwards = errors.New("checkpoint went back")
	// ErrEpoch breaks G4: an epoch was used by two terms, or a later term has a lower one.
	ErrEpoch = errors.New("epoch did not grow")
	// ErrUnfenced breaks G4: a leader sent at a time when it could not know that it led.
	ErrUnfenced = errors.New("sent without the right to")
	// ErrLease breaks G4: the lease did not exclude, or the checkpoint was not one value that one writer changes.
	ErrLease = errors.New("lease does not exclude")
	// ErrSkipped breaks G6: something went past its aggregate without a reason.
	ErrSkipped = errors.New("event skipped")
	// ErrStuck is a run that did not come to rest after everything had healed.
	ErrStuck = errors.New("run does not come to rest")
	// ErrGaveUp is a service that ended by itself, though nothing happened that waiting cannot heal.
	ErrGaveUp = errors.New("service gave up")
)

// Promises are all that are judged. Where one is broken others often are for that reason: those that come first are nearer to
// the cause.
func Promises() []error {
	return []error{
		ErrUncovered, ErrEpoch, ErrBackwards, ErrLease, ErrUnfenced, history.ErrMisrouted, history.ErrUnguarded, history.ErrUncommitted,
		history.ErrDoubled, history.ErrReordered, ErrPoison, ErrSkipped, history.ErrLost, ErrGaveUp, ErrStuck,
	}
}

// Promise is the promise that a violation breaks; nil where it is none.
func Promise(violation error) error {
	for _, promise := range Promises() {
		if errors.Is(violation, promise) {
			return promise
		}
	}
	return nil
}

// Write is one write of a checkpoint that the storage took.
type Write struct {
	// Stream is the one whose checkpoint it is.
	Stream   string
	Epoch    int64
	Leader   string
	LeaseID  string
	Position string
	// Generation is how often the operator has taken the checkpoint back.
	Generation int64
	Published  int64
	// Began is when the writer sent it.
	Began time.Time
	// Answered says that the writer heard of its success.
	Answered bool
	// Accepted is how many messages the broker had accepted when the write was sent.
	Accepted int
	// Parked is how many messages were parked then.
	Parked int
}

// Ended is a service that ended by itself.
type Ended struct {
	Instance string
	Err      error
}

// Run is everything recorded of one run.
type Run struct {
	history.History
	Writes []Write
	// FenceAfter is how long a successful write lets its writer send.
	FenceAfter time.Duration
	// Late says whether a message accepted at this moment had waited in the network since its leader sent it.
	Late func(leader string, at time.Time) bool
	// Lease is what package leasecheck says of the checkpoint's blob; nil means that one blob explains it.
	Lease error
	// Expected is the fold of the committed events, Actual what the read model says in the end.
	Expected, Actual *history.Model
	// ExpectedTotals and ActualTotals are those of documents that many aggregates feed; nil where there are none.
	ExpectedTotals, ActualTotals *history.Model
	// Sick are the aggregates that were to be parked, Aside what was set aside of them; and of others, which is wrong.
	Sick  []Sick
	Aside []Aside
	// Garbage is what strangers sent, in the order in which the broker took it.
	Garbage []Garbage
	// Left is what is still set aside when everything has been mended.
	Left []Aside
	// Mended is how many changes of the read model had been observed when the projection was mended.
	Mended int
	// ExpectedBefore and ActualBefore are the read model at that moment; nil where nothing was poison.
	ExpectedBefore, ActualBefore *history.Model
	// Given are the committed events that were given up on the way to the broker.
	Given []Given
	// Parked are the messages that producers have parked, in the order in which the storage took them.
	Parked []Parked
	// UsedUp is what is known of a run in which the broker dead-letters by itself; else nil.
	UsedUp *UsedUp
	// Replayed says that what was set aside has been replayed since.
	Replayed bool
	Ended    []Ended
	// Unrest says what had not come to rest, empty when everything had.
	Unrest string
}

// Judge names every broken promise; nil means that the run keeps every one. A run that did not come to rest is judged
// for that and for what it did until then.
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
		found = append(found, judgeWrites(stream, r.Writes, r.Accepted)...)
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
	found = append(found, judgeModel("read model beside the poison", r.ExpectedBefore, r.ActualBefore)...)
	found = append(found, judgeModel("read model", r.Expected, r.Actual)...)
	found = append(found, judgeModel("totals", r.ExpectedTotals, r.ActualTotals)...)
	return found
}

// judgeModel compares a model in the end.
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

// streams are those whose checkpoints were written, by their first write.
func (r Run) streams() (names []string) {
	for _, w := range r.Writes {
		if !slices.Contains(names, w.Stream) {
			names = append(names, w.Stream)
		}
	}
	return names
}

// judgeWrites follows the checkpoint of a stream through its writes.
func judgeWrites(stream string, writes []Write, accepted []history.Acceptance) []error {
	var found []error
	// firstAt is where each message was accepted first.
	firstAt := make(map[string]int, len(accepted))
	for i, a := range accepted {
		if _, seen := firstAt[a.MessageID]; !seen {
			firstAt[a.MessageID] = i
		}
	}
	// lowest[i] is the lowest position among the messages first accepted at i or later: what a checkpoint written before
	// must not reach.
	lowest := make([]string, len(accepted)+1)
	for i := len(accepted) - 1; i >= 0; i-- {
		lowest[i] = lowest[i+1]
		if a := accepted[i]; a.Stream == stream && firstAt[a.MessageID] == i && (lowest[i] == "" || a.Position < lowest[i]) {
			lowest[i] = a.Position
		}
	}
	terms := map[int64]string{}
	last := Write{Epoch: -1} // the record of a new stream is made with epoch 0, before anybody leads
	for _, w := range writes {
		if w.Stream != stream {
			continue
		}
		if low := lowest[w.Accepted]; low != "" && w.Position >= low {
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

func judgeRewinds(r Run) []error {
	if r.Unrest != "" {
		return nil
	}
	return r.NotAgain()
}

// NotAgain says what was published behind a place to which the operator has taken a checkpoint back, and has not been published again
// since, so that the broker took it.
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
				again[a.MessageID] = true // it is said once
				found = append(found, fmt.Errorf("%w: version %d of %s at %s was not published again when the checkpoint was taken back to %s in epoch %d",
					ErrSkipped, a.Version, a.Aggregate, a.Position, w.Position, w.Epoch))
			}
		}
	}
	return found
}

// judgeFence holds every message against the writes that gave its sender the right to send it.
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
			found = append(found, fmt.Errorf("%w: a message of %s of epoch %d, which nobody ever led", ErrUnfenced, a.Stream, a.Epoch))
			continue
		}
		allowed := r.Late != nil && r.Late(writes[0].Leader, a.At)
		for _, w := range writes {
			allowed = allowed || (w.Answered && !a.At.Before(w.Began) && a.At.Sub(w.Began) <= r.FenceAfter)
		}
		if !allowed {
			found = append(found, fmt.Errorf("%w: %s sent %s in epoch %d at %s, without a write in the %s before",
				ErrUnfenced, writes[0].Leader, short(a.MessageID), a.Epoch, a.At.Format("05.000"), r.FenceAfter))
		}
	}
	return found
}
