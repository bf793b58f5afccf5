package sim

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/projector/projection"
	"github.com/sluice-cdc/sluice/shared/commandline"
	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
	"github.com/sluice-cdc/sluice/tests/internal/checker"
	"github.com/sluice-cdc/sluice/tests/internal/ledger"
	"github.com/sluice-cdc/sluice/tests/internal/witness"
	"github.com/sluice-cdc/sluice/tests/sim/internal/plan"
)

// deadly begins the types of events that end every projector that handles them.
const deadly = "Deadly"

// usesUp reports whether deliveries and times to live are used up in this run, so that it is not
// known in advance which aggregates are parked.
func (w *world) usesUp() bool { return w.plan.Settings.Deliveries > 0 }

// kindOf returns the type with which an event is committed. If events may be overtaken, and
// dropped, each has its own type: the read model then shows which of them it contains.
func (w *world) kindOf(kind string, version int64) string {
	if !w.usesUp() {
		return kind
	}
	return fmt.Sprintf("%s-%d", kind, version)
}

// usedUp injects a fault that uses up the deliveries or the time to live of a message.
func (w *world) usedUp(step plan.Step) {
	kind := fine
	switch step.Kind {
	case plan.TakeOut:
		reason := map[string]string{plan.UsedUp: servicebus.UsedUp, plan.Expired: servicebus.Expired}[step.Answer]
		taken := carries(step.Aggregate, step.Before+1)
		end, err := w.bus.TakeOut(subPath, func(m servicebus.Accepted) string {
			if taken(m) {
				return reason
			}
			return ""
		})
		require.NoError(w, err)
		w.injected = append(w.injected, end)
	case plan.Deadly, plan.LastDeadly:
		kind = deadly
	default:
		w.Errorf("no code handles %s", step.Kind)
	}
	w.work.Go(func() { w.around(w.Context(), step, kind) })
}

var errDead = errors.New("the process is no more")

// survives determines what happens to a projector that handles an event: a deadly one ends it as a
// lack of memory ends a machine, and its peers do not notice.
func (i *instance) survives(e projection.Event, fixed *atomic.Bool) error {
	if kind, _ := e.Document().Lookup("type").StringValueOK(); i == nil || !strings.HasPrefix(kind, deadly) || fixed.Load() {
		return nil
	}
	if i.died.CompareAndSwap(false, true) {
		i.bus.Kill(true)
		i.mongo.Kill(true)
		i.stop()
	}
	return errDead
}

// projectionsOf returns the projections of one instance; nil is the operator, who survives.
func (w *world) projectionsOf(i *instance) *projection.Registry {
	all, err := projection.NewRegistry(brittleDocument{projection.Timeline{}, w, i}, brittle{ledger.Projection{}, w, i})
	require.NoError(w, err)
	return all
}

// deadliest returns the longest of the plan's pauses after a death; 0: nothing is deadly.
func (w *world) deadliest() (d time.Duration) {
	for _, s := range w.plan.Steps {
		if s.Kind == plan.Deadly || s.Kind == plan.LastDeadly {
			d = max(d, s.For.Duration)
		}
	}
	return d
}

// bury ends what a deadly event has killed, and restarts it when it is time. The driver's goroutine
// alone.
func (w *world) bury() {
	after := w.deadliest()
	if after == 0 {
		return
	}
	for _, s := range slices.Concat(w.projector, w.more) {
		if s.renew(func(i *instance) bool { return i.died.Load() }, true, after) {
			w.met.add("deaths of a deadly event", 1)
		}
	}
}

// quiet waits until every committed event is published and the broker has nothing left to deliver:
// everything is applied, or set aside.
func (w *world) quiet() bool {
	rest := func() bool {
		w.tend()
		committed, _ := w.record.Seen()
		return w.record.Published() >= committed && w.bus.Stats(subPath).Active == 0
	}
	bound := settled
	if w.deadliest() > 0 {
		// After each of up to a dozen deaths, sessions wait for the locks of the dead process, and
		// of those that the broker grants to its requests.
		bound = 3 * settled
	}
	// A projector that has just completed may have committed just before.
	return w.eventually(bound, rest) && w.eventually(time.Second, func() bool { pause(w.Context(), 500*time.Millisecond); return true })
}

// settleUsedUp replaces settle if it is not known in advance which aggregates are parked.
func (w *world) settleUsedUp() {
	if !w.quiet() {
		w.unrest("and messages are left")
		return
	}
	var atRest []string
	for _, step := range w.plan.Steps {
		if step.Kind != plan.LastDeadly {
			continue
		}
		w.trace.add("%s", step)
		atRest = append(atRest, step.Aggregate)
		w.usedUp(step)
		w.work.Wait()
		if !w.quiet() {
			w.unrest("and messages are left of %s", step.Aggregate)
			return
		}
	}
	aside := w.asideOf()
	held, err := witness.ReadTimeline(w.Context(), w.readModel())
	require.NoError(w, err)
	w.record.Note(func(run *checker.Run) {
		run.Aside, run.ObservedBefore = aside, len(run.Observed)
		run.UsedUp = &checker.UsedUp{
			Unjudged: w.plan.Settings.GapWait.Duration == 0, First: w.plan.Settings.VersionFirst, Expires: w.plan.Settings.TimeToLive.Duration > 0,
			AtRest: atRest, Held: held, Type: w.record.Type,
			Deadly: func(aggregate string, version int64) bool {
				return w.plan.Settings.WatchProcesses && strings.HasPrefix(w.record.Type(aggregate, version), deadly)
			},
		}
	})
	if len(aside) == 0 {
		return
	}
	w.fixed.Store(true)
	for _, after := range w.plan.KilledReplays {
		w.killed(after.Duration, "parked", "replay", "--all")
	}
	if !w.replayAll() {
		return
	}
	w.rests(func() int64 { return int64(len(w.record.Run().UsedUp.Abandoned)) })
	left := w.asideOf()
	w.record.Note(func(run *checker.Run) { run.Left, run.Replayed = left, true })
}

// replayAll has the operator replay whatever is set aside. A message of which it cannot be known
// whether it was applied is kept for the operator, who examines and drops it.
func (w *world) replayAll() bool {
	for idle := 0; idle < 30; {
		code, _ := w.operate(nil, "parked", "replay", "--all")
		run, names := w.record.Run(), map[string]bool{}
		for _, m := range w.asideOf() {
			names[run.Names(m)] = true
		}
		if code == commandline.ExitOK && len(names) == 0 {
			return true
		}
		overtaken := w.overtaken()
		for _, o := range overtaken {
			w.giveUp(o)
		}
		if len(overtaken) > 0 {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(names)) {
			w.operate(nil, "parked", "replay", name) // what a killed command has applied, and could not remove
		}
		idle++ // a killed command may have locked a message, or holds a session
		pause(w.Context(), 10*time.Second)
	}
	w.record.End("parked replay --all", fmt.Errorf("there are still %d dead letters: %+v", len(w.asideOf()), w.asideOf()))
	return false
}

// parking is an aggregate that is parked.
type parking struct{ aggregate, messageID string }

// overtaken returns the aggregates that are parked because of an event of which it is unknown
// whether it was applied.
func (w *world) overtaken() (all []parking) {
	collection, field := w.plan.Settings.Projection, projection.GuardField+".parked"
	if w.plan.Settings.Projection == plan.Ledger {
		collection, field = plan.Ledger+"_positions", "parked"
	}
	cursor, err := w.client.Database(readModel).Collection(collection).Find(w.Context(), bson.D{{Key: field + ".reason", Value: "Overtaken"}})
	require.NoError(w, err)
	var found []bson.Raw
	require.NoError(w, cursor.All(w.Context(), &found))
	for _, document := range found {
		id, _ := document.Lookup("_id").StringValueOK()
		message, _ := document.Lookup(append(strings.Split(field, "."), "messageId")...).StringValueOK()
		all = append(all, parking{id, message})
	}
	return all
}

// giveUp checks, as an operator, whether the read model contains an event, and drops its message.
func (w *world) giveUp(p parking) {
	run := w.record.Run()
	version := run.VersionOf(p.messageID)
	if !slices.ContainsFunc(w.asideOf(), func(m checker.Aside) bool { return m.MessageID == p.messageID }) {
		w.record.End("parked replay --all", fmt.Errorf("the only copy of version %d of %s is gone from the dead-letter queue", version, p.aggregate))
	}
	held, err := witness.ReadTimeline(w.Context(), w.readModel())
	require.NoError(w, err)
	applied := checker.Holds(held, p.aggregate, w.record.Type(p.aggregate, version)) > 0
	w.record.Note(func(run *checker.Run) { run.UsedUp.Judge(p.aggregate, version, applied) })
	w.trace.add("an operator examines version %d of %s, applied: %v", version, p.aggregate, applied)
	w.operate(nil, "parked", "drop", p.aggregate, "--yes")
}

// roomKept reports whether no session had more in hand than it has room for.
func (w *world) roomKept() error {
	room := w.plan.Settings.RoomOfSession()
	if most := w.bus.Stats(subPath).MostInHand; w.plan.Settings.BodyKiB > 0 && most > room {
		return fmt.Errorf("a session had %d bytes in hand, and room for %d (MAX_IN_FLIGHT_BYTES)", most, room)
	}
	return nil
}

// pad makes an event as large as the plan requires.
func (w *world) pad(document bson.D) bson.D {
	if n := w.plan.Settings.BodyKiB * plan.KiB; n > 0 {
		document = append(document, bson.E{Key: "pad", Value: strings.Repeat("x", n)})
	}
	return document
}
