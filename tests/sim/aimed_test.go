package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/sluice-cdc/sluice/tests/internal/emulator/servicebus"
)

// aimed makes one of the faults that hit a certain kind of bug where it must show, if it is there. At random they would come
// together too rarely.
func (w *world) aimed(p *plan) {
	r := w.aim
	kind, short, chance := r.IntN(8), between(r, time.Second, 4*time.Second), 0.3+0.5*r.Float64()
	few, seed, own := 1+r.IntN(3), r.Uint64(), rand.New(rand.NewPCG(r.Uint64(), 0xd1))
	switch kind {
	case 0:
		w.overtakeWrite(p, 2500*time.Millisecond+short)
	case 1: // lanes wait unequally long for what they send, over several heartbeats
		w.trace.add("Service Bus refuses %.0f %% of the sends for %s", 100*chance, short)
		w.inject(p, servicebus.Faults{Seed: seed, Send: servicebus.Fault{Busy: chance}}, short)
	case 2: // messages reach a session one by one, while the ones before are being applied
		w.drips++
		aggregate := fmt.Sprintf("drip-%d", w.drips)
		delay := time.Duration(1+int64(40*chance)) * time.Millisecond
		w.trace.add("events of %s come one by one, and every delivery takes %s", aggregate, delay)
		w.inject(p, servicebus.Faults{Seed: seed, Receive: servicebus.Fault{Delay: delay}}, 2*time.Second)
		w.work.Go(func() { w.drip(w.Context(), own, aggregate) })
	case 3: // settled on a lock that is lost; seldom, since every loss is one of the ten deliveries that a message has
		// A link whose session is lost is opened anew, and settlements wait for that: as after a cut.
		if w.locksLost || !w.mayCut(short/2) {
			return
		}
		w.locksLost = true
		w.trace.add("30 %% of the locks run out before their messages are settled, for %s", short/2)
		w.inject(p, servicebus.Faults{Seed: seed, LoseLock: 0.3}, short/2)
	case 4: // nobody knows whether the transaction is committed
		if w.settings.Projection != ledgerName {
			return
		}
		w.trace.add("lose the replies of %d commitTransaction", few)
		w.mongo.LoseReplies("commitTransaction", few)
	case 5, 6: // an event that cannot be applied, among others
		w.sick++
		aggregate := sickName(w.sick)
		w.work.Go(func() { w.poisoned(w.Context(), own, aggregate) })
	case 7:
		w.scale(p, short)
	}
}

func (w *world) inject(p *plan, f servicebus.Faults, d time.Duration) {
	end := w.bus.Inject(f)
	w.injected = append(w.injected, end)
	w.later(p, d, end)
}

// overtakeWrite lets the leader's next write of the checkpoint wait for d: longer than the leader waits for it, so that later
// ones overtake it, and shorter than the term lasts.
func (w *world) overtakeWrite(p *plan, d time.Duration) {
	leader := w.record.Leader()
	for _, s := range w.producers {
		if i := s.now; i != nil && i.name == leader {
			w.trace.add("the next write of %s's checkpoint takes %s", leader, d)
			i.blob.DelayNext(isCheckpointWrite)
			w.later(p, d, i.blob.Deliver)
		}
	}
}

// scale lets as many projectors come as make six, and some seconds later as many go as leave two, under load.
func (w *world) scale(p *plan, after time.Duration) {
	if len(w.more) > 0 {
		return
	}
	w.trace.add("scale projectors to 6, and to 2 after %s", after)
	for n := len(w.projector); n < 6; n++ {
		s := w.newProjector(n)
		w.more = append(w.more, s)
		s.start()
	}
	w.later(p, after, func() {
		for n, s := range w.more {
			if len(w.projector)+n >= 2 {
				s.end()
			}
		}
		w.later(p, after, func() { // the last of them
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
func (w *world) drip(ctx context.Context, random *rand.Rand, aggregate string) {
	for version := range int64(30) {
		w.insert(ctx, aggregate, version+1, "Drop")
		pause(ctx, time.Duration(random.Int64N(int64(40*time.Millisecond))))
	}
}
