package sim

import (
	"context"
	"hash/crc32"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluice-cdc/sluice/tests/emulator/mongo"
	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
	"github.com/sluice-cdc/sluice/tests/internal/checker"
	"github.com/sluice-cdc/sluice/tests/sim/internal/plan"
)

// mannerReasons are the reasons with which poison is set aside, by its manner; without one, the
// checker's default.
var mannerReasons = map[string]string{
	plan.Unencodable: "ProjectionInvalid", plan.TooLarge: "WriteRefused", plan.Grows: "WriteRefused",
}

// single makes a fault of single.go of package plan.
func (w *world) single(a *agenda, step plan.Step) {
	d := step.For.Duration
	switch step.Kind {
	case plan.HangProjection:
		w.hangProjection(a, step)
	case plan.EndAMQPSessions:
		switch {
		case !w.mayCut(d):
		case step.Times > 0:
			w.met.add("ended AMQP sessions", w.bus.EndSessions(topic, step.Condition, step.Times))
		default:
			end := servicebus.Fault{End: step.Chance}
			w.inject(a, servicebus.Faults{Seed: step.Random, Send: end, Receive: end, Settle: end}, d)
		}
	case plan.FailConcerns:
		w.met.add("write concern errors", 1)
		w.failPoint(step.Command, step.Times, ofProjectors, concern(step.Code))
	case plan.RefuseSession:
		session := w.plan.Settings.SessionKey.Session(step.Aggregate)
		w.refuseSends(a, step, func(of string) bool { return of == session })
	case plan.RefusePartition:
		w.refuseSends(a, step, func(of string) bool { return int(crc32.ChecksumIEEE([]byte(of)))%plan.Partitions == step.Times-1 })
	case plan.RefuseCollection:
		w.lasts(a, d, sync.OnceFunc(w.mongo.RefuseWrites(func(write mongo.Writing) int32 {
			if write.Database != readModel || write.Collection != step.Collection {
				return 0
			}
			w.met.add("refused writes to a collection", 1)
			return step.Code
		})))
	default:
		w.Errorf("the simulation has no fault %s", step.Kind)
	}
}

// hangProjection lets the projection not return from an event of an aggregate: for a while, or
// until all else is at rest. Its aggregate is parked by then, or not, as with
// [world.refuseDocument].
func (w *world) hangProjection(a *agenda, step plan.Step) {
	returns := make(chan struct{})
	w.hangs.Store(step.Aggregate, returns)
	how := checker.Sick{Reason: "Undecided", Ends: w.plan.Settings.WatchProcesses}
	w.fails(a, step, plan.Hanging, how, sync.OnceFunc(func() { close(returns) }))
}

// refuseSends answers every send to some sessions with a condition.
func (w *world) refuseSends(a *agenda, step plan.Step, of func(session string) bool) {
	w.lasts(a, step.For.Duration, sync.OnceFunc(w.bus.AnswerSendsOf(func(a servicebus.Accepted) bool {
		if strings.HasPrefix(a.MessageID, "garbage-") || !of(a.SessionID) {
			return false
		}
		w.met.add("refused sends of single sessions", 1)
		return true
	}, answerOf(step))))
}

// The healthy aggregates have an event every few seconds, until calm after all has healed: only
// what is wrong with single aggregates is still wrong then.
const (
	healthyEvery = 4 * time.Second
	calm         = 30 * time.Second
)

// beHealthy begins to commit the events of healthy aggregates. finish lets them continue while only
// single aggregates fail, and waits until they have ended.
func (w *world) beHealthy(ctx context.Context) (finish func()) {
	ctx, cancel := context.WithCancel(ctx)
	var committing sync.WaitGroup
	for _, name := range w.plan.Settings.HealthyNames() {
		committing.Go(func() {
			random := rand.New(rand.NewPCG(w.plan.Seed, uint64(crc32.ChecksumIEEE([]byte(name)))))
			for version := int64(1); ctx.Err() == nil; version++ {
				w.insert(context.WithoutCancel(ctx), name, version, "Well")
				pause(ctx, time.Duration(random.Int64N(int64(2*healthyEvery))))
			}
		})
	}
	return func() { //nolint:contextcheck // as in tendUntil: what tend starts outlives its caller
		if w.plan.Settings.Healthy > 0 {
			pause(w.Context(), w.recovers())
			w.trace.add("only single aggregates fail from now on")
			for end := time.Now().Add(calm); time.Now().Before(end); pause(w.Context(), time.Second) {
				w.tend()
			}
		}
		cancel()
		committing.Wait()
	}
}

// recovers returns how long the projectors may take to recover from what disturbed them. When a
// machine is lost, the broker may still grant a session to a request of its projector, until that
// has waited for as long as it was to; then that session's lock runs out; and the longest pause
// before a message that was delivered often, or between two attempts, is half a minute.
func (w *world) recovers() time.Duration {
	return w.projectorConfig().AcceptTimeout + w.plan.Settings.LockDuration.Duration + 30*time.Second
}

// disturbs reports whether a fault may hold up every aggregate behind the broker, and not only
// those that it is about.
func disturbs(step plan.Step) bool {
	switch step.Kind {
	case plan.Kill, plan.Stop, plan.HoldAndKill, plan.Hang, plan.Cut, plan.Isolate, plan.LoseAnswers, plan.DelayRequests:
		return !isProducer(step)
	case plan.KillProducers, plan.KillCursors, plan.UpgradeMongo, plan.StorageFails, plan.LoseAcks, plan.RefuseSends, plan.BreakLease,
		plan.OvertakeWrite, plan.BusySends, plan.AnswerSends, plan.SlowOpening, plan.RefuseMessage, plan.ExpireImages, plan.LoseHistory, plan.CommandSnapshot, plan.CommandPacks,
		plan.ReplaceCollection, plan.RefuseSession, plan.RefusePartition, // of what comes before the broker
		plan.Poison, plan.RefuseDocument, plan.HangProjection, plan.PoisonProgram: // of single aggregates
		return false
	default:
		return true
	}
}

// disturb records that a fault that began then held everything up until now, or for as long as it
// lasts.
func (w *world) disturb(began time.Time, step plan.Step) {
	end := time.Now().Add(max(step.For.Duration, step.KillAfter.Duration))
	if step.Kind == plan.Scale {
		end = end.Add(step.For.Duration) // it happens twice
	}
	end = end.Add(w.recovers())
	w.record.Note(func(run *checker.Run) { run.Disturbed = append(run.Disturbed, checker.Span{From: began, To: end}) })
}

// waits returns what is judged of how long the healthy aggregates wait, see README.md.
func (w *world) waits() *checker.Waits {
	if w.plan.Settings.Healthy == 0 {
		return nil
	}
	c := w.projectorConfig()
	hangs := 0
	for _, step := range w.plan.Steps {
		if step.Kind == plan.HangProjection || step.Kind == plan.PoisonProgram {
			hangs++
		}
	}
	patience := c.ApplyTimeout
	if w.plan.Settings.Program {
		patience = c.ProjectionTimeout
	}
	return &checker.Waits{
		Aggregates: slices.DeleteFunc(w.plan.Settings.HealthyNames(), w.hasFullSession),
		Bound:      c.SessionMaxHold + c.SessionIdle + time.Duration(hangs)*patience/4 + scheduling,
		PerEvent:   10*w.plan.Settings.MongoTrip.Duration + 10*time.Millisecond,
		Until:      time.Now(),
	}
}

// hasFullSession reports whether large messages of an aggregate that fails may fill the room of an
// aggregate's session, which then waits for it (see the pipeline's maxDeferred).
func (w *world) hasFullSession(aggregate string) bool {
	s := w.plan.Settings
	return s.BodyKiB > 0 && slices.ContainsFunc(w.plan.Steps, func(step plan.Step) bool {
		switch step.Kind {
		case plan.HangProjection, plan.PoisonProgram, plan.RefuseDocument:
			return s.SessionKey.Session(step.Aggregate) == s.SessionKey.Session(aggregate)
		default:
			return false
		}
	})
}

// scheduling is what the round trips of an accept, of a receive and of a write may take.
const scheduling = 5 * time.Second
