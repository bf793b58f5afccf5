package projector_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// A replay of all reads the dead-letter queue in proportion to the aggregates, not once completely
// for each.
func TestReplayOfAllReadsInProportionToAggregates(t *testing.T) {
	for _, aggregates := range []int{80, 160} {
		subtest(t, fmt.Sprint(aggregates), func(w *world.World) {
			const each = 4
			s := shapes()[1]
			p := w.StartProjector(s.settings)
			for n := 1; n <= each; n++ {
				var changes []envelope.Change
				for a := range aggregates {
					changes = append(changes, event(fmt.Sprint("a", a), n, map[bool]string{true: "Poison", false: "T"}[n == 1]))
				}
				publish(w, changes...)
			}
			deadLettered(w, each*aggregates)
			p.MustEnd()
			s.fixed.Store(true)
			before := w.Bus.Operations()["peek-message"]
			exits(w, 0, operate(w, s, "parked", "replay", "--all"))
			peeks := w.Bus.Operations()["peek-message"] - before
			w.Logf("%d aggregates: %d peeks", aggregates, peeks)
			require.Less(w, peeks, 2*aggregates)
			require.Empty(w, deadLetters(w))
			for a := range aggregates {
				require.Equal(w, each, s.applied(w, fmt.Sprint("a", a)))
			}
		})
	}
}
