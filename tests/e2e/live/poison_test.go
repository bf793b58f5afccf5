package live

import (
	"errors"
	"slices"
	"sync/atomic"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/tests/internal/checker"
	"github.com/sluice-cdc/sluice/tests/internal/witness"
)

// poison is the type of events that a brittle projection cannot apply.
const poison = "Poison"

// sick maps each aggregate that has a poison event to the version of that event.
var sick = map[string]int64{"event-0": 1, "event-1": 4, "event-2": 7}

// brittle is a timeline without a rule for poison events, until it is fixed.
type brittle struct {
	projection.Timeline
	fixed *atomic.Bool
}

var errPoison = errors.New("poison, until the projection is fixed")

// Project implements [projection.Projection].
func (b brittle) Project(e projection.Event) ([]projection.Write, error) {
	if e.Type == poison && !b.fixed.Load() {
		return nil, projection.Permanent(errPoison)
	}
	return b.Timeline.Project(e)
}

// recordAside records the dead letters and the rest of the read model before anything is fixed.
func (w *world) recordAside() {
	w.Helper()
	before, err := witness.ReadTimeline(w.Context(), w.collection(timeline))
	require.NoError(w, err)
	w.setAside()
	w.collect()
	w.run.ObservedBefore = len(w.run.Observed)
	w.run.ExpectedBefore, w.run.ActualBefore = w.fold(), before
}

// drop drops the event that parks an aggregate.
func (w *world) drop(aggregate string) {
	w.Helper()
	w.succeeds("projector", "parked drop "+aggregate+" --yes")
	w.mu.Lock()
	defer w.mu.Unlock()
	for n, s := range w.run.Sick {
		w.run.Sick[n].Dropped = s.Dropped || s.Aggregate == aggregate
	}
}

// replay replays every dead letter. A command leaves messages that it finds locked, and removes
// them when it is run again.
func (w *world) replay() {
	w.Helper()
	w.succeeds("projector", "parked replay --all")
	for aggregate := range sick {
		w.until("nothing of "+aggregate+" is dead-lettered any more", func() bool {
			if !w.isAside(aggregate) {
				return true
			}
			w.succeeds("projector", "parked replay "+aggregate)
			return false
		})
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.run.Replayed = true
}

// isAside reports whether a message of an aggregate with a session of its own is dead-lettered.
func (w *world) isAside(aggregate string) bool {
	return slices.ContainsFunc(w.aside(), func(a checker.Aside) bool { return a.Session == aggregate })
}
