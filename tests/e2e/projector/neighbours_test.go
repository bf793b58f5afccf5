package projector_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/tests/emulator/servicebus"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// unfetchable returns an event whose body is in storage, which the projector is not configured to
// read.
func unfetchable(aggregate string, n int) envelope.Change {
	c := event(aggregate, n, "T")
	c.Body, c.Claim = nil, &envelope.Claim{Blob: "shop.events/x.bson", Size: 300_000, SHA256: strings.Repeat("ab", 32)}
	return c
}

// healthyWaits publishes events of a healthy aggregate, one after the other, and returns the
// longest time that one took to be applied.
func healthyWaits(w *world.World, s shape, events int, between time.Duration, key envelope.SessionKey) (longest time.Duration) {
	w.Helper()
	for n := 1; n <= events; n++ {
		began := time.Now()
		publish(w, inSessions(key, event("healthy", n, "T"))...)
		for s.applied(w, "healthy") < n && time.Since(began) < time.Minute {
			w.Pass(20 * time.Millisecond)
		}
		longest = max(longest, time.Since(began))
		w.Pass(between)
	}
	return longest
}

// G5: a thousand aggregates fail for reasons of their own, and the bodies of forty cannot be
// fetched, with eight workers. A healthy event is not delayed by them.
func TestG5WaitingAggregatesOccupyNoWorker(t *testing.T) {
	eachReceiver(t, func(w *world.World, receiver string) {
		s := undecided(shapes()[0])
		s.adjust = func(c *projector.Config) { c.SessionReceiver = receiver }
		failing, large := 1000, 40
		if receiver == "sdk" { // an accept is fifteen requests
			failing, large = 40, 10
		}
		var bad []envelope.Change
		for n := range failing {
			bad = append(bad, event(fmt.Sprintf("bad-%d", n), 1, "Unlisted"))
		}
		for n := range large {
			bad = append(bad, unfetchable(fmt.Sprintf("large-%d", n), 1))
		}
		publish(w, bad...)
		w.StartProjector(s.settings)
		w.Pass(2 * time.Minute)
		longest := healthyWaits(w, s, 10, 5*time.Second, envelope.SessionKey{})
		w.Logf("a healthy event waited for up to %s", longest)
		require.LessOrEqual(w, longest, time.Second)
		require.Zero(w, w.Bus.Stats(world.SubscriptionPath).Redelivered, "a delivery count rose")
	})
}

// G5: three aggregates of a shared session miss a version, each with more events behind the gap
// than are received at once. Their neighbour does not wait for them, and the gaps close when the
// versions arrive.
func TestG5AVersionGapHoldsUpNoNeighbour(t *testing.T) {
	eachShape(t, func(w *world.World, s shape) {
		names := []string{"x", "y", "z"}
		// If an accept took no time, a session that is released at once, repeatedly, would stop
		// virtual time.
		defer w.Bus.Inject(servicebus.Faults{Accept: servicebus.Fault{Delay: 50 * time.Millisecond}})()
		p := w.StartProjector(s.settings)
		for _, name := range names {
			publishTogether(w, event(name, 1, "T"))
		}
		w.Completed(3)
		for _, name := range names {
			var behind []envelope.Change
			for n := 3; n <= 122; n++ {
				behind = append(behind, event(name, n, "T"))
			}
			publishTogether(w, behind...)
		}
		require.LessOrEqual(w, healthyWaits(w, s, 3, time.Second, envelope.Buckets(1)), time.Second)
		for _, name := range names {
			publishTogether(w, event(name, 2, "T"))
		}
		w.Completed(3 + 3*121 + 3)
		for _, name := range names {
			require.Equal(w, 122, s.applied(w, name))
		}
		p.MustEnd()
		require.Zero(w, w.Bus.Stats(world.SubscriptionPath).Redelivered, "a delivery count rose")
		require.Zero(w, w.Bus.Stats(world.SubscriptionPath).DeadLettered)
	})
}

// G5: a body that cannot be fetched delays only its own aggregate, in a session that others share,
// and is applied in its place once it can be fetched.
func TestG5ABodyThatIsAwayHoldsUpNoNeighbour(t *testing.T) {
	eachShape(t, func(w *world.World, s shape) {
		for n := 1; n <= 150; n++ {
			publishTogether(w, unfetchable("large", n))
		}
		w.StartProjector(s.settings)
		w.Pass(time.Minute)
		require.LessOrEqual(w, healthyWaits(w, s, 5, time.Second, envelope.Buckets(1)), time.Second)
		w.Pass(20 * time.Minute)
		require.Zero(w, s.applied(w, "large"))
		require.Zero(w, w.Bus.Stats(world.SubscriptionPath).DeadLettered+w.Bus.Stats(world.SubscriptionPath).Redelivered)
	})
}
