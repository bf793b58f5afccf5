package e2e

import (
	"fmt"
	"math/rand/v2"

	"github.com/stretchr/testify/require"
)

// interrupt does each of three harms once in so many calls: it breaks the connections to either server, or kills one of the
// projectors and starts another in its place.
func (w *projectorWorld) interrupt(random *rand.Rand, onceIn int, running []*runningProjector) {
	w.Helper()
	switch random.IntN(onceIn) {
	case 0:
		w.bus.DropConnections()
	case 1:
		w.mongo.DropConnections()
	case 2:
		i := random.IntN(len(running))
		running[i].kill()
		running[i] = w.start(nil)
	}
}

// appliedInOrder holds the timelines of the aggregates a0, a1, … against so many events of each: all are counted once, no
// position was ever written behind a later one, and nothing was set aside.
func (w *projectorWorld) appliedInOrder(positions map[string][]string, aggregates, events int) {
	w.Helper()
	for a := range aggregates {
		id := fmt.Sprint("a", a)
		doc := w.timeline(id)
		require.Equal(w, int64(events), doc.Events, "aggregate %s", id)
		last := ""
		for _, position := range positions[id] {
			require.Greater(w, position, last)
			last = position
		}
		require.Equal(w, doc.Guard.Position, last)
	}
	require.Empty(w, w.bus.PeekDeadLetters(subPath, 10))
}
