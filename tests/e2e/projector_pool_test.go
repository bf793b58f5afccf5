package e2e

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
)

// A session without messages is given back while the projector runs on, and by closing it: its lock does not run out.
func TestProjectorGivesIdleSessionsBack(t *testing.T) {
	inBubble(t, func(w *projectorWorld) {
		p := w.start(nil)
		w.pass(3 * time.Second)   // workers look in vain
		for n := 1; n <= 5; n++ { // more often than MaxDeliveryCount
			w.publish(event("a", n, "T"), event("b", n, "T"))
			w.completed(2 * n)
			require.Equal(w, 2, w.bus.Stats(subPath).HeldSessions, "kept for SESSION_IDLE")
			w.pass(3 * time.Second)
			require.Zero(w, w.bus.Stats(subPath).HeldSessions)
		}
		counted, err := p.end()
		require.NoError(w, err)
		require.Zero(w, counted.Redelivered)
		require.Equal(w, 10, counted.Applied)
	})
}

// A session that always has messages gives way to others after SESSION_MAX_HOLD.
func TestProjectorLetsNoHotSessionStarveOthers(t *testing.T) {
	inBubble(t, func(w *projectorWorld) {
		const hot = 500
		for n := 1; n <= hot; n++ {
			w.publish(event("hot", n, "T"))
		}
		w.block("update", hot+10, 10*time.Millisecond) // five seconds of work
		p := w.start(func(c *projector.Config, _ *projector.Options) {
			c.MaxSessions, c.Connections, c.ReceiveBatch = 1, 1, 1
			c.SessionIdle, c.SessionMaxHold = 500*time.Millisecond, time.Second
		})
		w.completed(1)
		for n := 1; n <= 3; n++ {
			w.publish(event(fmt.Sprint("cold", n), 1, "T"))
			w.eventually("the cold one has its turn", func() bool { return w.timeline(fmt.Sprint("cold", n)).Events == 1 })
			require.Less(w, w.timeline("hot").Events, int64(hot))
		}
		w.completed(hot + 3)
		counted, err := p.end()
		require.NoError(w, err)
		require.Equal(w, hot+3, counted.Applied, "nothing of it out of order")
		require.Zero(w, counted.Redelivered)
	})
}

// Stops in the middle of the work, again and again: no delivery count rises and each is over in time.
func TestProjectorStopsCleanlyWithManySessions(t *testing.T) {
	for _, receiver := range []string{"direct", "sdk"} {
		t.Run(receiver, func(t *testing.T) { inBubble(t, func(w *projectorWorld) { stopAgainAndAgain(w, receiver) }) })
	}
}

func stopAgainAndAgain(w *projectorWorld, receiver string) {
	const aggregates, events, stops = 12, 60, 8
	for n := 1; n <= events; n++ {
		for a := range aggregates {
			w.publish(event(fmt.Sprint("a", a), n, "T"))
		}
	}
	w.block("update", 10_000, 30*time.Millisecond)
	applied := 0
	for range stops {
		p := w.start(func(c *projector.Config, _ *projector.Options) { c.SessionReceiver, c.ReceiveBatch = receiver, 2 })
		w.eventually("something is in hand", func() bool { return w.bus.Stats(subPath).Locked > 0 })
		w.pass(45 * time.Millisecond)
		start := time.Now()
		counted, err := p.end()
		require.NoError(w, err)
		require.Less(w, time.Since(start), 20*time.Second)
		require.Zero(w, counted.Redelivered)
		require.Zero(w, w.bus.Stats(subPath).HeldSessions)
		applied += counted.Applied
	}
	require.Less(w, w.bus.Stats(subPath).Completed, aggregates*events, "the stops came too late to tell anything")
	p := w.start(nil)
	w.completed(aggregates * events)
	counted, err := p.end()
	require.NoError(w, err)
	require.Zero(w, counted.Redelivered)
	require.Equal(w, aggregates*events, applied+counted.Applied)
	require.Zero(w, w.bus.Stats(subPath).DeadLettered)
}

// A session is given back only when everything of it is completed, which takes several round trips.
func TestProjectorCompletesBeforeItGivesBack(t *testing.T) {
	inWorld(t, 5*time.Millisecond, func(w *projectorWorld) {
		const aggregates, events = 6, 300
		for a := range aggregates {
			var changes []envelope.Change
			for n := 1; n <= events; n++ {
				changes = append(changes, event(fmt.Sprint("a", a), n, "T"))
			}
			w.publish(changes...)
		}
		p := w.start(func(c *projector.Config, _ *projector.Options) { c.MaxSessions, c.ReceiveBatch = 2, events })
		w.completed(aggregates * events)
		counted, err := p.end()
		require.NoError(w, err)
		require.Equal(w, aggregates*events, counted.Applied)
		require.Zero(w, counted.Duplicates)
	})
}

// A settlement whose link is gone opens it again, and so writes down anew when the lock ends, which a renewal does, too: the
// race detector sees it when they are not kept apart.
func TestProjectorRenewsBesideSettlementsThatOpenTheLinkAgain(t *testing.T) {
	inBubble(t, func(w *projectorWorld) {
		const rounds, events = 10, 20
		p := w.start(func(c *projector.Config, _ *projector.Options) { c.ApplyTimeout = time.Minute })
		for round := range rounds {
			w.block("update", 1, lockDuration) // a renewal comes and goes while the batch is being applied
			for n := 1; n <= events; n++ {
				w.publish(event("a", round*events+n, "T"))
			}
			w.pass(lockDuration - time.Second)
			end := w.bus.Inject(servicebus.Faults{Seed: uint64(round), Settle: servicebus.Fault{Detach: 0.3}})
			w.completed((round + 1) * events)
			end()
		}
		_, err := p.end()
		require.NoError(w, err)
		require.Equal(w, int64(rounds*events), w.timeline("a").Events)
		require.Zero(w, w.bus.Stats(subPath).DeadLettered)
	})
}

// from makes a projector receive from a queue.
func from(queue string) func(*projector.Config, *projector.Options) {
	return func(c *projector.Config, _ *projector.Options) { c.Topic, c.Subscription, c.Queue = "", "", queue }
}

// A queue in place of topic and subscription.
func TestProjectorReceivesFromAQueue(t *testing.T) {
	inBubble(t, func(w *projectorWorld) {
		sender, err := w.busOwn.NewSender(queue, nil)
		require.NoError(w, err)
		garbage := w.encode(event("b", 1, "T"))
		garbage.Body = []byte("{")
		for _, m := range []*azservicebus.Message{w.encode(event("a", 1, "T")), w.encode(event("a", 2, "T")), garbage, w.encode(event("c", 1, "T"))} {
			require.NoError(w, sender.SendMessage(w.Context(), m, nil))
		}
		p := w.start(from(queue))
		w.eventually("the queue is empty", func() bool {
			s := w.bus.Stats(queue)
			return s.Completed == 3 && s.DeadLettered == 1
		})
		_, err = p.end()
		require.NoError(w, err)
		require.Equal(w, int64(2), w.timeline("a").Events)
		require.Equal(w, int64(1), w.timeline("c").Events)
	})
}

// bucketed is an event in a session that its aggregate shares with others.
func bucketed(key envelope.SessionKey, aggregate string, n int) envelope.Change {
	c := event(aggregate, n, "T")
	c.Session = key.Session(aggregate)
	return c
}

// G1, G2, G3: aggregates that share sessions keep their order and lose nothing, whatever happens to connections and
// projectors.
func TestG1G2G3ProjectorsOfSharedSessions(t *testing.T) {
	const events, aggregates = 60, 12
	key := envelope.Buckets(3)
	for seed := range uint64(3) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			inBubble(t, func(w *projectorWorld) {
				random := rand.New(rand.NewPCG(seed, 2))
				positions := w.watch("timeline")
				running := []*runningProjector{w.start(nil), w.start(nil)}
				for n := 1; n <= events; n++ {
					for a := range aggregates {
						w.publish(bucketed(key, fmt.Sprint("a", a), n))
					}
					w.pass(time.Duration(random.IntN(6)) * time.Millisecond)
					w.interrupt(random, 20, running)
				}
				w.completed(events * aggregates)
				for _, p := range running {
					_, err := p.end()
					require.NoError(w, err)
				}
				require.LessOrEqual(w, w.bus.Stats(subPath).Sessions, 3)
				w.appliedInOrder(positions(), aggregates, events)
			})
		})
	}
}
