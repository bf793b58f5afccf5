package live

import (
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/internal/checker"
	"github.com/sluice-cdc/sluice/tests/internal/witness"
	"github.com/sluice-cdc/sluice/tests/internal/workload"
)

// committing records events that are about to be committed.
func (w *world) committing(batch []workload.Event, at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rec.Commit(workload.Commits(batch, at)...)
	for _, e := range batch {
		if e.Type == poison {
			w.run.Sick = append(w.run.Sick, checker.Sick{Aggregate: e.AggregateID, Before: e.Version - 1})
		}
	}
}

// last is the _id of the document that the test itself writes into the read model after all
// services have ended.
const last = "the last one"

// observe records one change of a document.
func (w *world) observe(change bson.Raw, at time.Time) {
	o, ok := witness.Timeline(change, at)
	w.mu.Lock()
	defer w.mu.Unlock()
	if o.Aggregate == last {
		w.over = true
		return
	}
	if ok {
		w.rec.Observe(o)
	}
}

// collect copies everything that was recorded so far into the run.
func (w *world) collect() {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := w.run.SessionKey
	w.run.History = w.rec.History()
	w.run.SessionKey = key
	if w.settings.Projection != timeline { // the guards of others are elsewhere
		w.run.Observed = nil
	}
}

// due returns how many events of each aggregate must become visible: all that are committed by now,
// except poison events and those behind them.
func (w *world) due() map[string]int64 {
	due, _ := w.rec.Progress()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.run.Sick {
		switch {
		case !w.run.Replayed:
			due[s.Aggregate] = s.Before
		case s.Dropped:
			due[s.Aggregate]--
		}
	}
	return due
}

// shows reports whether the given number of events of each aggregate is visible.
func (w *world) shows(due map[string]int64) bool {
	_, visible := w.rec.Progress()
	for aggregate, n := range due {
		if visible[aggregate] < n {
			return false
		}
	}
	return true
}

// behind returns how many events are not visible yet.
func (w *world) behind() (n int64) {
	due := w.due()
	_, visible := w.rec.Progress()
	for aggregate, events := range due {
		n += max(0, events-visible[aggregate])
	}
	return n
}

// parked reports whether any event stays invisible because of a poison event.
func (w *world) parked() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.run.Sick, func(s checker.Sick) bool { return !w.run.Replayed || s.Dropped })
}

// unrest records a condition that was not met.
func (w *world) unrest(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.run.Unrest = what
}

func (w *world) counts() string {
	counts := w.rec.Counts()
	return fmt.Sprintf("%d events are committed, %d published, %d not visible yet; the broker has %+v", counts.Committed, counts.Published, w.behind(), w.stats())
}
