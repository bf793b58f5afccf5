package sim

import (
	"context"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
	"github.com/sluice-cdc/sluice/tests/internal/checker"
	"github.com/sluice-cdc/sluice/tests/sim/internal/plan"
)

// aimed makes one of the faults that reveal a certain kind of bug, if it is there.
func (w *world) aimed(a *agenda, step plan.Step) {
	d := step.For.Duration
	switch step.Kind {
	case plan.OvertakeWrite:
		w.overtakeWrite(a, d)
	case plan.BusySends:
		w.inject(a, servicebus.Faults{Seed: step.Random, Send: servicebus.Fault{Busy: step.Chance}}, d)
	case plan.Drip:
		w.inject(a, servicebus.Faults{Seed: step.Random, Receive: servicebus.Fault{Delay: step.Delay.Duration}}, d)
		w.work.Go(func() { w.drip(w.Context(), step) })
	case plan.LoseLocks:
		// A link whose session is lost is opened again, and settlements wait for that, as after a
		// cut.
		if w.mayCut(d) {
			w.inject(a, servicebus.Faults{Seed: step.Random, LoseLock: step.Chance}, d)
		}
	case plan.SlowSettles:
		w.inject(a, servicebus.Faults{Settle: servicebus.Fault{Delay: step.Delay.Duration}}, d)
	case plan.Poison:
		commits := w.commitsOf(step)
		w.record.Note(func(run *checker.Run) {
			run.Sick = append(run.Sick, checker.Sick{
				Aggregate: step.Aggregate, Before: step.Before, Total: step.Total, Poison: commits[step.Before], Dropped: step.Dropped,
				Reason: mannerReasons[step.Manner],
			})
		})
		kind := strings.TrimSuffix(poison+"-"+step.Manner, "-")
		w.work.Go(func() { w.commitAll(w.Context(), commits, step.Before, kind, rand.New(rand.NewPCG(step.Random, 0xd4))) })
	case plan.Scale:
		w.scale(a, d)
	case plan.AnswerSends:
		w.answerSends(step)
	case plan.RefuseMessage:
		w.refuseMessage(step)
	case plan.Rewind:
		w.work.Go(func() { w.rewind(step) })
	default:
		w.Errorf("no code handles %s", step.Kind)
	}
}

// answerSends gives an unusual answer to the next sends of the producers. Strangers use the SDK,
// which treats some of them as acceptance.
func (w *world) answerSends(step plan.Step) {
	left := int64(step.Times) // the broker calls it for one send after the other, and for no other message once it has its answer
	var mu sync.Mutex
	w.injected = append(w.injected, w.bus.AnswerSendsOf(func(a servicebus.Accepted) bool {
		mu.Lock()
		defer mu.Unlock()
		if strings.HasPrefix(a.MessageID, "garbage-") {
			return false
		}
		left--
		return left >= 0
	}, answerOf(step)))
}

func (w *world) inject(a *agenda, f servicebus.Faults, d time.Duration) {
	w.lasts(a, d, w.bus.Inject(f))
}

// lasts plans the end of something that was injected, which is called again when everything heals.
func (w *world) lasts(a *agenda, d time.Duration, end func()) {
	w.injected = append(w.injected, end)
	w.later(a, d, end)
}

// overtakeWrite delays the leader's next write of the checkpoint by d: longer than the leader waits
// for it, so that later ones overtake it, and shorter than the term lasts.
func (w *world) overtakeWrite(a *agenda, d time.Duration) {
	leader := w.record.Leader()
	for _, s := range w.producers {
		if i := s.now; i != nil && i.name == leader {
			w.trace.add("%s leads", leader)
			i.blob.DelayNext(isCheckpointWrite)
			w.later(a, d, i.blob.Deliver)
		}
	}
}

// scale adds projectors until there are six, and some seconds later stops projectors until there
// are two, under load.
func (w *world) scale(a *agenda, after time.Duration) {
	if len(w.more) > 0 {
		return
	}
	for n := len(w.projector); n < 6; n++ {
		s := w.newProjector(plan.ProjectorName(n))
		w.more = append(w.more, s)
		s.start()
	}
	w.later(a, after, func() {
		for n, s := range w.more {
			if len(w.projector)+n >= 2 {
				s.end()
			}
		}
		w.later(a, after, func() { // the last of them
			for _, s := range w.more {
				s.end()
			}
		})
	})
}

func isCheckpointWrite(r *http.Request) bool {
	return r.Method == http.MethodPut && r.URL.Query().Get("comp") == ""
}

// drip commits events of one aggregate, one at a time.
func (w *world) drip(ctx context.Context, step plan.Step) {
	random := rand.New(rand.NewPCG(step.Random, 0xd2))
	for version := range step.Total {
		w.insert(ctx, step.Aggregate, version+1, "Drop")
		pause(ctx, time.Duration(random.Int64N(int64(40*time.Millisecond))))
	}
}
