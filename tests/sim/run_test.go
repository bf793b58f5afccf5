package sim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/tests/internal/checker"
	"github.com/sluice-cdc/sluice/tests/sim/internal/plan"
)

// settled is how long a run may take to come to rest after everything has healed, in virtual time.
const settled = 10 * time.Minute

// whole is a run from its start to its judgement; harm happens while events are committed.
func (w *world) whole(harm func()) {
	w.trace.add("%s", w.plan.Settings)
	for _, name := range w.plan.Settings.ProducerNames() {
		w.producers = append(w.producers, w.newProducer(name))
	}
	for _, name := range w.plan.Settings.ProjectorNames() {
		w.projector = append(w.projector, w.newProjector(name))
	}
	w.prepare(w.Context())
	for _, s := range append(slices.Clip(w.producers), w.projector...) {
		s.start()
	}
	// A stream begins when its first checkpoint has a position; what is committed before does not
	// belong to it.
	if w.eventually(settled, func() bool { return w.record.Begun(w.plan.Settings.StreamNames()) }) {
		w.began = time.Now()
		w.trace.begin(w.began)
		w.work.Go(func() { w.write(w.Context()) })
		w.work.Go(func() { w.litter(w.Context()) })
		healthy := w.beHealthy(w.Context())
		harm()
		w.disturb(time.Now(), plan.Step{}) // those that were missing start
		w.await()
		healthy()
		w.settleSnapshots()
		w.settle()
		w.settleVersions()
	} else {
		w.record.Note(func(run *checker.Run) { run.Unrest = "no producer leads" })
	}
	w.stopAll()
	w.endPrograms()
	w.judge()
}

// await does what the work that remains asks for, until it has ended.
func (w *world) await() {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.work.Wait()
	}()
	for {
		select {
		case do := <-w.driver:
			do()
		case <-ended:
			return
		}
	}
}

// settle waits until everything is visible that can be, and then has the poison fixed and replayed.
func (w *world) settle() {
	if w.usesUp() {
		w.settleUsedUp()
		return
	}
	if !w.beside() || !w.rests(func() int64 { return w.record.Hidden() + w.parkedPerhaps() }) {
		return
	}
	aside := w.asideOf()
	w.record.Note(func(run *checker.Run) { run.Aside = aside })
	if len(w.record.Run().Patients()) == 0 {
		return
	}
	w.look()
	w.settleParked()
	w.rests(w.record.Dropped)
	left := w.asideOf()
	w.record.Note(func(run *checker.Run) { run.Left = left })
}

// rests waits until every committed event is published, again after each rewind, and all except the
// hidden ones are visible.
func (w *world) rests(hidden func() int64) bool {
	rest := func() bool {
		w.tend()
		committed, visible := w.record.Seen()
		return visible >= committed-hidden() && w.record.Published() >= committed && w.record.NotAgain() == 0 &&
			w.bus.Stats(subPath).Active == 0 && !w.passedOver()
	}
	if w.eventually(settled, rest) {
		return true
	}
	w.unrest("%d are parked", hidden())
	return false
}

// unrest records that a run did not come to rest, and its state.
func (w *world) unrest(format string, args ...any) {
	committed, visible := w.record.Seen()
	unrest := fmt.Sprintf("%d of %d events are visible, %s, %d are not published again; the broker counts %+v",
		visible, committed, fmt.Sprintf(format, args...), w.record.NotAgain(), w.bus.Stats(subPath))
	w.record.Note(func(run *checker.Run) { run.Unrest = unrest })
}

// stopAll stops every service cleanly and joins all there ever were.
func (w *world) stopAll() {
	all := slices.Concat(w.versions.projectors, w.projector, w.more, w.producers)
	for _, s := range all {
		s.end()
	}
	for _, s := range all {
		for _, i := range s.gone {
			<-i.done
			for _, l := range i.links() {
				l.Cut()
			}
		}
	}
}

func (w *world) judge() {
	actual, actualTotals := w.versions.actual, w.versions.actualTotals
	if actual == nil {
		var err error
		actual, actualTotals, err = w.readModels("")
		require.NoError(w, err)
	}
	expected, totals := w.record.Fold(occurred)
	pause(context.Background(), time.Second) // the observer of the read model records the last changes
	run := w.record.Run()
	run.Late, run.Actual, run.Expected = w.late, actual, expected
	run.Waits = w.waits()
	if w.plan.Settings.Projection == plan.Ledger {
		run.ExpectedTotals, run.ActualTotals = totals, actualTotals
	}
	found := checker.Judge(run)
	if _, longest, allowed := run.LongestWait(); longest > allowed/2 {
		w.Logf("a healthy event waited %s of %s", longest.Round(time.Millisecond), allowed)
	}
	if w.passedOver() {
		found = append(found, fmt.Errorf("%w: a collection was replaced, and the stream went on", checker.ErrSkipped))
	}
	if err := w.roomKept(); err != nil {
		found = append(found, err)
	}
	for _, violation := range found {
		w.broken.add(violation)
	}
	if len(found) > 0 {
		w.Logf("promises broken: %s", w.broken)
	}
	for n, violation := range found {
		if n == 10 {
			w.Errorf("and %d more", len(found)-n)
			break
		}
		w.Errorf("%v", violation)
	}
}
