package sim

import (
	"context"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

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

// singles are the faults of single aggregates, sessions, partitions and collections, and what the
// seeds met of them.
type singles struct {
	mu    sync.Mutex
	hangs map[string]chan struct{} // by aggregate; guarded by mu

	hung, mannered, ended, concerns, refusedSends, refusedWrites atomic.Int64
}

// hang does not return before the hang of an aggregate ends.
func (s *singles) hang(aggregate string) {
	s.mu.Lock()
	end := s.hangs[aggregate]
	s.mu.Unlock()
	if end != nil {
		s.hung.Add(1)
		<-end
	}
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
			w.singles.ended.Add(int64(w.bus.EndSessions(topic, step.Condition, step.Times)))
		default:
			end := servicebus.Fault{End: step.Chance}
			w.inject(a, servicebus.Faults{Seed: step.Random, Send: end, Receive: end, Settle: end}, d)
		}
	case plan.FailConcerns:
		w.failConcerns(step)
	case plan.RefuseSession:
		session := w.plan.Settings.SessionKey.Session(step.Aggregate)
		w.refuseSends(a, step, func(of string) bool { return of == session })
	case plan.RefusePartition:
		w.refuseSends(a, step, func(of string) bool { return int(crc32.ChecksumIEEE([]byte(of)))%plan.Partitions == step.Times-1 })
	case plan.RefuseCollection:
		end := sync.OnceFunc(w.mongo.RefuseWrites(func(write mongo.Writing) int32 {
			if write.Database != readModel || write.Collection != step.Collection {
				return 0
			}
			w.singles.refusedWrites.Add(1)
			return step.Code
		}))
		w.injected = append(w.injected, end)
		w.later(a, d, end)
	default:
		w.Errorf("the simulation has no fault %s", step.Kind)
	}
}

// hangProjection lets the projection not return from an event of an aggregate: for a while, or
// until all else is at rest. Its aggregate is parked by then, or not, as with
// [world.refuseDocument].
func (w *world) hangProjection(a *agenda, step plan.Step) {
	w.record.Note(func(run *checker.Run) {
		run.Sick = append(run.Sick, checker.Sick{
			Aggregate: step.Aggregate, Before: step.Before, Total: step.Total, Reason: "Undecided", Perhaps: true, Ends: w.plan.Settings.WatchProcesses,
		})
	})
	returns := make(chan struct{})
	w.singles.mu.Lock()
	if w.singles.hangs == nil {
		w.singles.hangs = map[string]chan struct{}{}
	}
	w.singles.hangs[step.Aggregate] = returns
	w.singles.mu.Unlock()
	end := sync.OnceFunc(func() { close(returns) })
	w.refusals.documents[step.Aggregate] = end
	if step.For.Duration > 0 {
		w.later(a, step.For.Duration, end)
	}
	w.work.Go(func() { w.around(w.Context(), step, plan.Hanging) })
}

// refuseSends answers every send to some sessions with a condition.
func (w *world) refuseSends(a *agenda, step plan.Step, of func(session string) bool) {
	end := sync.OnceFunc(w.bus.AnswerSendsOf(func(a servicebus.Accepted) bool {
		if strings.HasPrefix(a.MessageID, "garbage-") || !of(a.SessionID) {
			return false
		}
		w.singles.refusedSends.Add(1)
		return true
	}, servicebus.Answer{Outcome: outcomes[step.Answer], Detach: step.Answer == plan.Detached, Condition: step.Condition}))
	w.injected = append(w.injected, end)
	w.later(a, step.For.Duration, end)
}

// failConcerns makes MongoDB do what the next commands of projectors ask, and answer with a write
// concern error beside it.
func (w *world) failConcerns(step plan.Step) {
	w.singles.concerns.Add(1)
	err := w.client.Database("admin").RunCommand(w.Context(), bson.D{
		{Key: "configureFailPoint", Value: "failCommand"},
		{Key: "mode", Value: bson.D{{Key: "times", Value: step.Times}}},
		{Key: "data", Value: bson.D{
			{Key: "failCommands", Value: bson.A{step.Command}},
			{Key: "appName", Value: "sluice-projector"},
			{Key: "writeConcernError", Value: bson.D{{Key: "code", Value: step.Code}, {Key: "errmsg", Value: "waiting for replication"}}},
		}},
	}).Err()
	if err != nil {
		w.trace.add("MongoDB could not be made to answer with a write concern error: %v", err)
	}
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

// recovers is how long the projectors may take to recover from what disturbed them. When a machine
// is lost, the broker may still grant a session to a request of its projector, until that has
// waited for as long as it was to; then that session's lock runs out; and the longest pause before
// a message that was delivered often, or between two attempts, is half a minute.
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

// waits is what is judged of how long the healthy aggregates wait, see README.md.
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

// coverageOfSingles is what the seeds have met of them.
type coverageOfSingles struct {
	hung, mannered, ended, concerns, refusedSends, refusedWrites, judged, longest int
}

func (c *coverageOfSingles) add(w *world, run checker.Run) {
	s := &w.singles
	c.hung += int(s.hung.Load())
	c.mannered += int(s.mannered.Load())
	c.ended += int(s.ended.Load())
	c.concerns += int(s.concerns.Load())
	c.refusedSends += int(s.refusedSends.Load())
	c.refusedWrites += int(s.refusedWrites.Load())
	run.Waits = w.waits()
	judged, longest, _ := run.LongestWait()
	c.judged += judged
	c.longest = max(c.longest, int(longest.Milliseconds()))
}

func (c coverageOfSingles) String() string {
	return fmt.Sprintf(" hung projections:%d poison in other manners:%d ended AMQP sessions:%d write concern errors:%d refused sends of single sessions:%d refused writes to a collection:%d healthy events with a bound:%d milliseconds of the longest of their waits:%d",
		c.hung, c.mannered, c.ended, c.concerns, c.refusedSends, c.refusedWrites, c.judged, c.longest)
}
