package projector_test

import (
	"fmt"
	"math/rand/v2"

	"github.com/sluice-cdc/sluice/tests/internal/world"
	"github.com/stretchr/testify/require"
)

// interrupt does each of three harms once in the given number of calls: it breaks the connections
// to either server, or kills one of the projectors and starts another one.
func interrupt(w *world.World, random *rand.Rand, onceIn int, running []*world.Projector) {
	w.Helper()
	switch random.IntN(onceIn) {
	case 0:
		w.Bus.DropConnections()
	case 1:
		w.Mongo.DropConnections()
	case 2:
		i := random.IntN(len(running))
		running[i].Kill()
		running[i] = w.StartProjector(nil)
	}
}

// appliedInOrder compares the timelines of the aggregates a0, a1, … with the number of events of
// each: all are counted once, no position was written behind a later one, and nothing was set
// aside.
func appliedInOrder(w *world.World, positions map[string][]string, aggregates, events int) {
	w.Helper()
	for a := range aggregates {
		id := fmt.Sprint("a", a)
		doc := w.TimelineOf(id)
		require.Equal(w, int64(events), doc.Events, "aggregate %s", id)
		last := ""
		for _, position := range positions[id] {
			require.Greater(w, position, last)
			last = position
		}
		require.Equal(w, doc.Guard.Position, last)
	}
	require.Empty(w, w.Bus.PeekDeadLetters(world.SubscriptionPath, 10))
}
