package projector_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sluice-cdc/sluice/shared/envelope"
	"github.com/sluice-cdc/sluice/tests/internal/world"
)

// G2: effects are written in order, although messages arrive one by one while others are being
// applied, connections break, and messages in hand are delivered again.
func TestG2ProjectorKeepsOrderThroughRedelivery(t *testing.T) {
	keepsOrder(t, 5, interrupted{replicas: 1, aggregates: 3, events: 150, onceIn: 40})
}

// G1, G2, G3: aggregates that share sessions keep their order and lose nothing, whatever happens to
// connections and projectors.
func TestG1G2G3ProjectorsOfSharedSessions(t *testing.T) {
	keepsOrder(t, 3, interrupted{replicas: 2, aggregates: 12, events: 60, onceIn: 20, key: envelope.Buckets(3)})
}

// interrupted is a load, and how often it is interrupted: each of three harms comes once in onceIn
// events of each aggregate.
type interrupted struct {
	replicas, aggregates, events, onceIn int
	key                                  envelope.SessionKey
}

// keepsOrder requires that each event of the load is counted once, that no position is written
// behind a later one, and that nothing is set aside, while connections to either server break, and
// projectors are killed and replaced.
func keepsOrder(t *testing.T, seeds uint64, load interrupted) {
	t.Helper()
	for seed := range seeds {
		subtest(t, fmt.Sprint("seed ", seed), func(w *world.World) {
			random := rand.New(rand.NewPCG(seed, uint64(load.replicas)))
			positions := watch(w, "timeline")
			var running []*world.Projector
			for range load.replicas {
				running = append(running, w.StartProjector(nil))
			}
			for n := 1; n <= load.events; n++ {
				for a := range load.aggregates {
					publish(w, inSessions(load.key, event(fmt.Sprint("a", a), n, "T"))...)
				}
				w.Pass(time.Duration(random.IntN(6)) * time.Millisecond)
				switch random.IntN(load.onceIn) {
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
			w.Completed(load.events * load.aggregates)
			for _, p := range running {
				p.MustEnd()
			}
			written := positions()
			for a := range load.aggregates {
				id := fmt.Sprint("a", a)
				doc := w.TimelineOf(id)
				require.Equal(w, int64(load.events), doc.Events, "aggregate %s", id)
				require.IsIncreasing(w, written[id])
				require.Equal(w, doc.Guard.Position, written[id][len(written[id])-1])
			}
			require.LessOrEqual(w, w.Bus.Stats(world.SubscriptionPath).Sessions, 3)
			require.Empty(w, w.Bus.PeekDeadLetters(world.SubscriptionPath, 10))
		})
	}
}
