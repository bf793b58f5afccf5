package projector_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// A session without messages is released by closing it while the projector continues: its lock does
// not expire.
func TestProjectorReleasesIdleSessions(t *testing.T) {
	inVirtualTime(t, func(w *world.World) {
		p := w.StartProjector(nil)
		w.Pass(3 * time.Second)   // workers find no session
		for n := 1; n <= 5; n++ { // more often than MaxDeliveryCount
			publish(w, event("a", n, "T"), event("b", n, "T"))
			w.Completed(2 * n)
			require.Equal(w, 2, w.Bus.Stats(world.SubscriptionPath).HeldSessions, "kept for SESSION_IDLE")
			w.Pass(3 * time.Second)
			require.Zero(w, w.Bus.Stats(world.SubscriptionPath).HeldSessions)
		}
		counted := p.MustEnd()
		require.Zero(w, counted.Redelivered)
		require.Equal(w, 10, counted.Applied)
	})
}

// A session that always has messages gives way to others after SESSION_MAX_HOLD.
func TestProjectorLetsNoHotSessionStarveOthers(t *testing.T) {
	inVirtualTime(t, func(w *world.World) {
		const hot = 500
		for n := 1; n <= hot; n++ {
			publish(w, event("hot", n, "T"))
		}
		w.DelayMongo(hot+10, 10*time.Millisecond, "update") // five seconds of work
		p := w.StartProjector(func(c *projector.Config, _ *projector.Options) {
			c.MaxSessions, c.Connections, c.ReceiveBatch = 1, 1, 1
			c.SessionIdle, c.SessionMaxHold = 500*time.Millisecond, time.Second
		})
		w.Completed(1)
		for n := 1; n <= 3; n++ {
			publish(w, event(fmt.Sprint("cold", n), 1, "T"))
			w.Eventually("the cold one has its turn", func() bool { return w.TimelineOf(fmt.Sprint("cold", n)).Events == 1 })
			require.Less(w, w.TimelineOf("hot").Events, int64(hot))
		}
		w.Completed(hot + 3)
		counted := p.MustEnd()
		require.Equal(w, hot+3, counted.Applied, "nothing of it out of order")
		require.Zero(w, counted.Redelivered)
	})
}

// Repeated stops in the middle of the work: no delivery count rises and each stop is over in time.
func TestProjectorStopsCleanlyWithManySessions(t *testing.T) {
	eachReceiver(t, stopAgainAndAgain)
}

func stopAgainAndAgain(w *world.World, receiver string) {
	const aggregates, events, stops = 12, 60, 8
	publish(w, rounds(aggregates, 1, events)...)
	w.DelayMongo(10_000, 30*time.Millisecond, "update")
	applied := 0
	for range stops {
		p := w.StartProjector(func(c *projector.Config, _ *projector.Options) { c.SessionReceiver, c.ReceiveBatch = receiver, 2 })
		w.Eventually("something is in hand", func() bool { return w.Bus.Stats(world.SubscriptionPath).Locked > 0 })
		w.Pass(45 * time.Millisecond)
		start := time.Now()
		counted := p.MustEnd()
		require.Less(w, time.Since(start), 20*time.Second)
		require.Zero(w, counted.Redelivered)
		require.Zero(w, w.Bus.Stats(world.SubscriptionPath).HeldSessions)
		applied += counted.Applied
	}
	require.Less(w, w.Bus.Stats(world.SubscriptionPath).Completed, aggregates*events, "the stops came too late to prove anything")
	p := w.StartProjector(nil)
	w.Completed(aggregates * events)
	counted := p.MustEnd()
	require.Zero(w, counted.Redelivered)
	require.Equal(w, aggregates*events, applied+counted.Applied)
	require.Zero(w, w.Bus.Stats(world.SubscriptionPath).DeadLettered)
}

// A settlement whose link is gone opens it again, and so sets the end of the lock, as a renewal
// does: the race detector reports it if the two are not synchronised.
func TestProjectorRenewsBesideSettlementsThatOpenTheLinkAgain(t *testing.T) {
	inVirtualTime(t, func(w *world.World) {
		const rounds, events = 10, 20
		p := w.StartProjector(func(c *projector.Config, _ *projector.Options) { c.ApplyTimeout = time.Minute })
		for round := range rounds {
			w.DelayMongo(1, world.LockDuration, "update") // a renewal comes and goes while the batch is being applied
			for n := 1; n <= events; n++ {
				publish(w, event("a", round*events+n, "T"))
			}
			w.Pass(world.LockDuration - time.Second)
			end := w.Bus.Inject(servicebus.Faults{Seed: uint64(round), Settle: servicebus.Fault{Detach: 0.3}})
			w.Completed((round + 1) * events)
			end()
		}
		p.MustEnd()
		require.Equal(w, int64(rounds*events), w.TimelineOf("a").Events)
		require.Zero(w, w.Bus.Stats(world.SubscriptionPath).DeadLettered)
	})
}

// from makes a projector receive from a queue.
func from(queue string) func(*projector.Config, *projector.Options) {
	return func(c *projector.Config, _ *projector.Options) { c.Topic, c.Subscription, c.Queue = "", "", queue }
}

// A worker does not wait until its session's last messages are settled and the session is released:
// it accepts the next one in the meantime. Only one, so that what is not released yet is bounded.
func TestG1ProjectorAcceptsTheNextSessionWhileItReleasesOne(t *testing.T) {
	inVirtualTime(t, func(w *world.World) {
		const slow = 4 * time.Second
		end := w.Bus.Inject(servicebus.Faults{Settle: servicebus.Fault{Delay: slow}})
		for _, name := range []string{"a", "b", "c"} {
			publish(w, event(name, 1, "T"))
		}
		applied := func(n int64) func() bool {
			return func() bool {
				there, err := w.Client.Database(world.ReadModel).Collection("timeline").CountDocuments(w.Context(), bson.D{})
				require.NoError(w, err)
				return there >= n
			}
		}
		began := time.Now()
		p := w.StartProjector(func(c *projector.Config, _ *projector.Options) { c.MaxSessions, c.Connections = 1, 1 })
		w.Eventually("two are applied", applied(2))
		require.Less(w, time.Since(began), slow, "the second session waited for the first one's settlement")
		w.Eventually("three are applied", applied(3))
		require.GreaterOrEqual(w, time.Since(began), slow, "there are more sessions than twice the workers")
		counted := p.MustEnd() // waits for what is released as well
		end()
		require.Equal(w, 3, counted.Applied)
		require.Zero(w, counted.Duplicates)
		stats := w.Bus.Stats(world.SubscriptionPath)
		require.Equal(w, []int{3, 0, 0}, []int{stats.Completed, stats.Locked, stats.Redelivered})
	})
}

// What a projector requests from the broker besides accepting sessions and settling messages: a
// peek costs a round trip, and as many credits on the Standard tier as several messages, so it is
// made if it saves more receives than it costs, or not at all.
func TestProjectorPeeksOnlyWhereItSaves(t *testing.T) {
	const each = 64
	for _, test := range []struct {
		receiver           string
		sessions, messages int
		most               int // peeks, including the one at the start that shows that the broker answers
	}{
		{"direct", each, 1, 1},
		{"direct", 1, each, 1},
		{"sdk", each, 1, each / 4},
		{"sdk", 1, each, 8},
	} {
		subtest(t, fmt.Sprint(test.receiver, " ", test.sessions, " sessions"), func(w *world.World) {
			for a := range test.sessions {
				for n := 1; n <= test.messages; n++ {
					publish(w, event(fmt.Sprint("a", a), n, "T"))
				}
			}
			p := w.StartProjector(func(c *projector.Config, _ *projector.Options) { c.SessionReceiver = test.receiver })
			w.Completed(each)
			p.MustEnd()
			asked := w.Bus.Operations()
			require.LessOrEqual(w, asked["peek-message"], test.most)
			require.GreaterOrEqual(w, asked[servicebus.OperationAccept], test.sessions)
			require.Equal(w, each, asked[servicebus.OperationSettle])
			require.Zero(w, asked["renew-session-lock"])
		})
	}
}
