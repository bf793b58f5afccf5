package projector_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// G5: an operator can park any aggregate, even one of which nothing was applied yet. Nothing of it
// is applied then, and a replay applies all of it, in order.
func TestG5AnOperatorParksAnAggregate(t *testing.T) {
	eachShape(t, func(w *world.World, s shape) {
		w.StartProjector(s.settings)
		publish(w, event("a", 1, "T"), event("b", 1, "T"))
		w.Completed(2)
		require.Equal(w, 0, operate(w, s, "parked", "park", "a", "--reason", "it stops the projector").Code)
		again := exits(w, 1, operate(w, s, "parked", "park", "a", "--reason", "x"))
		require.Contains(w, again.Err, "a is parked already")
		fresh := exits(w, 0, operate(w, s, "parked", "park", "new", "--reason", "so does this"))
		require.Contains(w, fresh.Out, "check the name")

		for n := 2; n <= 5; n++ {
			publish(w, event("a", n, "T"), event("b", n, "T"), event("new", n-1, "T"))
		}
		deadLettered(w, 8)
		w.Completed(6)
		require.Equal(w, []int{1, 5, 0}, []int{s.applied(w, "a"), s.applied(w, "b"), s.applied(w, "new")})
		show := operate(w, s, "parked", "show", "a")
		require.Contains(w, show.Out, "ParkedByOperator")
		require.Contains(w, show.Out, "it stops the projector")
		w.Pass(10 * time.Second)

		require.Equal(w, 0, operate(w, s, "parked", "replay", "--all").Code)
		require.Empty(w, deadLetters(w))
		requireRight(w, s, "a", 5)
		requireRight(w, s, "new", 4)
		publish(w, event("a", 6, "T"))
		w.Completed(7)
		requireRight(w, s, "a", 6)
	})
}

// G6: a drop removes the first waiting event of an aggregate that an operator parked, and no other.
func TestG6ADropOfWhatAnOperatorParked(t *testing.T) {
	eachShape(t, func(w *world.World, s shape) {
		w.StartProjector(s.settings)
		publish(w, event("a", 1, "T"))
		w.Completed(1)
		require.Equal(w, 0, operate(w, s, "parked", "park", "a", "--reason", "it is wrong").Code)
		require.Contains(w, operate(w, s, "parked", "drop", "a", "--yes").Err, "no event of the aggregate waits")
		publish(w, event("a", 2, "Poison"), event("a", 3, "T"))
		deadLettered(w, 2)
		w.Pass(10 * time.Second)
		exits(w, 0, operate(w, s, "parked", "drop", "a", "--yes"))
		require.Equal(w, 2, s.applied(w, "a"))
		require.Empty(w, deadLetters(w))
	})
}
