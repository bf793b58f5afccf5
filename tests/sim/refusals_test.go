package sim

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
	"github.com/sluice-cdc/sluice/tests/internal/checker"
	"github.com/sluice-cdc/sluice/tests/sim/internal/plan"
)

// refusals are what the read model's database refuses of single aggregates, and of large
// transactions.
type refusals struct {
	documents  map[string]func() // by aggregate, what ends it; the driver's goroutine alone
	large      atomic.Int64      // transactions that were refused
	refused    atomic.Int64      // writes of documents that were
	slowEvents atomic.Int64      // nanoseconds that a projection takes for an event
	slowed     atomic.Int64      // events
}

// refuse makes one of the faults that concern a projector's writes.
func (w *world) refuse(a *agenda, step plan.Step) {
	d := step.For.Duration
	switch step.Kind {
	case plan.RefuseDocument:
		w.refuseDocument(a, step)
	case plan.SmallTransactions:
		end := w.mongo.RefuseWrites(func(write mongo.Writing) int32 {
			if write.Database != readModel || write.Before < step.Times {
				return 0
			}
			w.refusals.large.Add(1)
			return step.Code
		})
		w.injected = append(w.injected, end)
		w.later(a, d, end)
	case plan.SlowEvents:
		w.refusals.slowEvents.Store(int64(step.Delay.Duration))
		end := func() { w.refusals.slowEvents.Store(0) }
		w.injected = append(w.injected, end)
		w.later(a, d, end)
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
	w.record.Note(func(run *checker.Run) {
		run.Sick = append(run.Sick, checker.Sick{Aggregate: step.Aggregate, Before: step.Before, Total: step.Total, Reason: reason, Perhaps: true})
	})
	end := sync.OnceFunc(w.mongo.RefuseWrites(func(write mongo.Writing) int32 {
		if write.Database != readModel || write.Collection != w.plan.Settings.Projection || write.ID != step.Aggregate || !holdsStubborn(write.Document) {
			return 0
		}
		w.refusals.refused.Add(1)
		return step.Code
	}))
	w.refusals.documents[step.Aggregate] = end
	if step.For.Duration > 0 {
		w.later(a, step.For.Duration, end)
	}
	w.work.Go(func() { w.around(w.Context(), step, plan.Stubborn) })
}

func holdsStubborn(document bson.Raw) bool {
	n, ok := document.Lookup("types", plan.Stubborn).AsInt64OK()
	return ok && n > 0
}

// slowly waits for the time that a projection takes for an event.
func (r *refusals) slowly() {
	if d := time.Duration(r.slowEvents.Load()); d > 0 {
		r.slowed.Add(1)
		time.Sleep(d)
	}
}

// beside waits until everything except the aggregates that are still refused is visible: they must
// not delay others. Then the refusals end.
func (w *world) beside() bool {
	var names []string
	for name := range w.refusals.documents {
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
	for _, end := range w.refusals.documents {
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
	for name := range w.refusals.documents {
		if parked[name] {
			names = append(names, name)
		}
	}
	return w.record.Missing(names...)
}

// coverageOfRefusals is what the seeds have met of them.
type coverageOfRefusals struct {
	undecided, refused, healed int // aggregates with a document that MongoDB refuses: parked after a while, parked at once, and never parked
	large, slow                int // transactions that were refused, and events for which a projection took its time
}

func (c *coverageOfRefusals) add(w *world, run checker.Run) {
	for _, s := range run.Sick {
		switch parked := slices.ContainsFunc(run.Aside, func(m checker.Aside) bool { return run.Names(m) == s.Aggregate }); {
		case !s.Perhaps:
		case !parked:
			c.healed++
		case s.Reason == "Undecided":
			c.undecided++
		default:
			c.refused++
		}
	}
	c.large += int(w.refusals.large.Load())
	c.slow += int(w.refusals.slowed.Load())
}

func (c coverageOfRefusals) String() string {
	return fmt.Sprintf(" undecided:%d refused for good:%d refused for a while:%d transactions too large:%d slow events:%d", c.undecided, c.refused, c.healed, c.large, c.slow)
}
