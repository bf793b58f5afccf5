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

// sick are the aggregates with an event that is poison, by its version.
var sick = map[string]int64{"event-0": 1, "event-1": 4, "event-2": 7}

// brittle is the timeline of somebody who has no rule for poison, until it is mended.
type brittle struct {
	projection.Timeline
	mended *atomic.Bool
}

var errPoison = errors.New("poison, until the projection is mended")

// Project implements [projection.Projection].
func (b brittle) Project(e projection.Event) ([]projection.Write, error) {
	if e.Type == poison && !b.mended.Load() {
		return nil, projection.Permanent(errPoison)
	}
	return b.Timeline.Project(e)
}

// look records what was set aside, and what there is beside it, before anything is mended.
func (w *world) look() {
	w.Helper()
	before, err := witness.ReadTimeline(w.Context(), w.collection(timeline))
	require.NoError(w, err)
	w.setAside()
	w.collect()
	w.run.ObservedBefore = len(w.run.Observed)
	w.run.ExpectedBefore, w.run.ActualBefore = w.fold(), before
}

// drop gives up the event that parks an aggregate.
func (w *world) drop(aggregate string) {
	w.Helper()
	w.succeeds("projector", "parked drop "+aggregate+" --yes")
	w.mu.Lock()
	defer w.mu.Unlock()
	for n, s := range w.run.Sick {
		w.run.Sick[n].Dropped = s.Dropped || s.Aggregate == aggregate
	}
}

// replay has everything replayed that was set aside. Of what a command finds locked it leaves the messages, and removes them
// when it is given again.
func (w *world) replay() {
	w.Helper()
	w.succeeds("projector", "parked replay --all")
	for aggregate := range sick {
		w.until("nothing of "+aggregate+" is set aside any more", func() bool {
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

// isAside says whether a message of an aggregate, which has a session to itself, is set aside.
func (w *world) isAside(aggregate string) bool {
	return slices.ContainsFunc(w.aside(), func(a checker.Aside) bool { return a.Session == aggregate })
}
