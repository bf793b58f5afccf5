package projector_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/projector"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// G1, G5: the dead letters of a partitioned entity are found in every partition, and an aggregate
// is not unparked while some of them have not been read.
func TestG1G5DeadLettersAreFoundInEveryPartition(t *testing.T) {
	for _, receiver := range []string{"direct", "sdk"} {
		eachShapeOf(t, receiver, func(w *world.World, s shape) {
			s.adjust = func(c *projector.Config) {
				c.Topic, c.Subscription, c.Queue, c.SessionReceiver = "", "", world.PartitionedQueue, receiver
			}
			const aggregates = 20
			sender, err := w.BusClient.NewSender(world.PartitionedQueue, nil)
			require.NoError(w, err)
			put := func(aggregate string, n int, eventType string) {
				require.NoError(w, sender.SendMessage(w.Context(), encode(w, event(aggregate, n, eventType)), nil))
			}
			stats := func() (completed, dead int) {
				s := w.Bus.Stats(world.PartitionedQueue)
				return s.Completed, s.DeadLettered
			}
			for n := 1; n <= 4; n++ {
				for a := range aggregates {
					put(fmt.Sprintf("a%d", a), n, map[bool]string{true: "Poison", false: "T"}[n == 2])
				}
			}
			w.StartProjector(s.settings)
			w.Eventually("all is decided", func() bool {
				completed, dead := stats()
				return completed == aggregates && dead == 3*aggregates
			})
			require.Contains(w, operate(w, s, "parked", "show", "a7").Out, "3 events in the dead-letter queue")
			require.Contains(w, operate(w, s, "status").Out, "40 AggregateParked, 20 ProjectionFailed")
			s.fixed.Store(true)
			require.Equal(w, 0, operate(w, s, "parked", "replay", "--all").Code)
			_, dead := stats()
			require.Zero(w, dead)
			for a := range aggregates {
				requireRight(w, s, fmt.Sprintf("a%d", a), 4)
			}
			put("a7", 5, "T")
			w.Eventually("it goes on", func() bool { completed, _ := stats(); return completed == aggregates+1 })
		})
	}
}
