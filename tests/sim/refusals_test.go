package sim

import (
	"sync"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
	"github.com/sluice-cdc/sluice/tests/internal/checker"
	"github.com/sluice-cdc/sluice/tests/sim/internal/plan"
)

// refuse makes one of the faults that concern a projector's writes.
func (w *world) refuse(a *agenda, step plan.Step) {
	d := step.For.Duration
	switch step.Kind {
	case plan.RefuseDocument:
		w.refuseDocument(a, step)
	case plan.SmallTransactions:
		w.lasts(a, d, w.mongo.RefuseWrites(func(write mongo.Writing) int32 {
			if write.Database != readModel || write.Before < step.Times {
				return 0
			}
			w.met.add("transactions too large", 1)
			return step.Code
		}))
	case plan.SlowEvents:
		w.slowEvents.Store(int64(step.Delay.Duration))
		w.lasts(a, d, func() { w.slowEvents.Store(0) })
	default:
		w.Errorf("no code handles %s", step.Kind)
	}
}

// readModel is the database of the read models.
const readModel = "readmodel"

// refuseDocument makes MongoDB refuse every document of an aggregate that contains its stubborn
// event, as an index would: for a while, or until everything else is at rest. Its aggregate is
// parked by then, or not: that depends on the code, and on how long it takes.
func (w *world) refuseDocument(a *agenda, step plan.Step) {
	reason := "Undecided"
	if plan.ForGood(step.Code) {
		reason = "WriteRefused"
	}
	end := sync.OnceFunc(w.mongo.RefuseWrites(func(write mongo.Writing) int32 {
		if write.Database != readModel || write.Collection != w.plan.Settings.Projection || write.ID != step.Aggregate || !holdsStubborn(write.Document) {
			return 0
		}
		return step.Code
	}))
	w.fails(a, step, plan.Stubborn, checker.Sick{Reason: reason}, end)
}

// fails commits the events of an aggregate of which one fails until end is called: for a while, or
// until all else is at rest. By then the aggregate is parked as how describes, or not.
func (w *world) fails(a *agenda, step plan.Step, kind string, how checker.Sick, end func()) {
	how.Aggregate, how.Before, how.Total, how.Perhaps = step.Aggregate, step.Before, step.Total, true
	w.record.Note(func(run *checker.Run) { run.Sick = append(run.Sick, how) })
	w.failing[step.Aggregate] = end
	if step.For.Duration > 0 {
		w.later(a, step.For.Duration, end)
	}
	w.work.Go(func() { w.around(w.Context(), step, kind) })
}

func holdsStubborn(document bson.Raw) bool {
	n, ok := document.Lookup("types", plan.Stubborn).AsInt64OK()
	return ok && n > 0
}

// beside waits until everything except the aggregates that are still refused is visible: they must
// not delay others. Then the refusals end.
func (w *world) beside() bool {
	var names []string
	for name := range w.failing {
		names = append(names, name)
	}
	rest := func() bool {
		w.tend()
		committed, visible := w.record.Seen()
		return visible >= committed-w.record.Hidden()-w.record.Missing(names...) && w.record.Published() >= committed
	}
	well := w.eventually(settled, rest)
	if !well {
		w.unrest("while MongoDB refuses documents of %v", names)
	}
	for _, end := range w.failing {
		end()
	}
	w.trace.add("MongoDB refuses nothing any more")
	return well
}

// parkedPerhaps returns how many events of aggregates that need not be parked are invisible because
// the aggregates are parked.
func (w *world) parkedPerhaps() int64 {
	run, parked := w.record.Run(), map[string]bool{}
	for _, m := range w.asideOf() {
		parked[run.Names(m)] = true
	}
	var names []string
	for name := range w.failing {
		if parked[name] {
			names = append(names, name)
		}
	}
	return w.record.Missing(names...)
}
