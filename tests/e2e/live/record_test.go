package live

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/internal/checker"
	"github.com/sluice-cdc/sluice/tests/internal/history"
	"github.com/sluice-cdc/sluice/tests/internal/witness"
	"github.com/sluice-cdc/sluice/tests/internal/workload"
)

// records is what is observed from outside the services.
type records struct {
	rec *history.Recorder

	mu   sync.Mutex
	run  checker.Run // without what rec has, until it is judged; guarded by mu until everything has ended
	over bool        // the witness of the read model has seen its last change; guarded by mu
}

func newRecords(s settings) *records {
	r := &records{rec: history.NewRecorder()}
	r.run.SessionKey = s.SessionKey
	// In real time a message that was sent in time and arrived late cannot be distinguished from
	// one that was sent too late.
	r.run.Late = func(string, time.Time) bool { return true }
	return r
}

// committing records events that are about to be committed.
func (r *records) committing(batch []workload.Event, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rec.Commit(workload.Commits(batch, at)...)
	for _, e := range batch {
		if e.Type == poison {
			r.run.Sick = append(r.run.Sick, checker.Sick{Aggregate: e.AggregateID, Before: e.Version - 1})
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
func (r *records) due() map[string]int64 {
	due, _ := r.rec.Progress()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.run.Sick {
		switch {
		case !r.run.Replayed:
			due[s.Aggregate] = s.Before
		case s.Dropped:
			due[s.Aggregate]--
		}
	}
	return due
}

// shows reports whether the given number of events of each aggregate is visible.
func (r *records) shows(due map[string]int64) bool {
	_, visible := r.rec.Progress()
	for aggregate, n := range due {
		if visible[aggregate] < n {
			return false
		}
	}
	return true
}

// behind returns how many events are not visible yet.
func (r *records) behind() (n int64) {
	due := r.due()
	_, visible := r.rec.Progress()
	for aggregate, events := range due {
		n += max(0, events-visible[aggregate])
	}
	return n
}

// parked reports whether any event stays invisible because of a poison event.
func (r *records) parked() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.run.Sick, func(s checker.Sick) bool { return !r.run.Replayed || s.Dropped })
}

// unrest records a condition that was not met.
func (r *records) unrest(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.run.Unrest = what
}

func (w *world) counts() string {
	counts := w.rec.Counts()
	return fmt.Sprintf("%d events are committed, %d published, %d not visible yet; the broker has %+v", counts.Committed, counts.Published, w.behind(), w.stats())
}
